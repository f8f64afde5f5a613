// The agent's settings as the datastore has them. Held back until the first complete picture, then given as one, and
// again whenever they change: three layers of raw values, global, by node selector, and of this host.
import { compileSelector, type Labels, lookupIn, type Resource, tryParseSelector } from "../model/index.ts";

export type RawConfig = Readonly<Record<string, string>>;
export interface ConfigLayers {
  readonly global: RawConfig;
  readonly selector: RawConfig;
  readonly host: RawConfig;
}

export interface ConfigListener {
  onConfig(layers: ConfigLayers): void;
  /** The datastore is not, or no longer, ready for use. */
  onNotReady(): void;
}

export class ConfigBatcher {
  readonly #host: string;
  readonly #listener: ConfigListener;
  readonly #toRaw: (configuration: Resource) => RawConfig;
  readonly #global = new Map<string, string>();
  readonly #own = new Map<string, string>();
  readonly #selected = new Map<string, Resource>();
  #nodeLabels: Labels | undefined;
  #isReady = false;
  #isInSync = false;
  #said: ConfigLayers | undefined;
  #saidReady: boolean | undefined;
  #isDirty = true;

  /** @param options.toRaw a FelixConfiguration's fields as the values the other layers have */
  constructor(options: {
    readonly host: string;
    readonly toRaw: (configuration: Resource) => RawConfig;
    readonly listener: ConfigListener;
  }) {
    this.#host = options.host;
    this.#toRaw = options.toRaw;
    this.#listener = options.listener;
  }

  setGlobal(name: string, value: string | undefined): void {
    this.#set(this.#global, name, value);
  }
  setHost(host: string, name: string, value: string | undefined): void {
    if (host === this.#host) this.#set(this.#own, name, value);
  }
  setReady(isReady: boolean): void {
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    this.#isDirty = true;
  }
  setNode(name: string, resource: Resource | undefined): void {
    if (name !== this.#host) return;
    this.#nodeLabels = resource === undefined ? undefined : (resource.metadata.labels ?? {});
    this.#isDirty = true;
  }
  /** One that is neither `default` nor of a host: it says itself which nodes it is for. */
  setConfiguration(name: string, resource: Resource | undefined): void {
    if (name === "default" || name.startsWith("node.")) return;
    if (resource === undefined) this.#selected.delete(name);
    else this.#selected.set(name, resource);
    this.#isDirty = true;
  }
  setInSync(): void {
    this.#isInSync = true;
  }

  flush(): void {
    if (!this.#isInSync || !this.#isDirty) return;
    this.#isDirty = false;
    if (!this.#isReady && this.#saidReady !== false) this.#listener.onNotReady();
    this.#saidReady = this.#isReady;
    const layers: ConfigLayers = {
      global: Object.fromEntries(this.#global),
      selector: this.#selectorLayer(),
      host: Object.fromEntries(this.#own),
    };
    if (Bun.deepEquals(layers, this.#said, true)) return;
    this.#said = layers;
    this.#listener.onConfig(layers);
  }

  #selectorLayer(): RawConfig {
    if (this.#nodeLabels === undefined) return {};
    const chosen = chooseConfiguration(this.#selected.values(), this.#nodeLabels);
    return chosen === undefined ? {} : this.#toRaw(chosen);
  }

  #set(values: Map<string, string>, name: string, value: string | undefined): void {
    if (values.get(name) === value) return;
    if (value === undefined) values.delete(name);
    else values.set(name, value);
    this.#isDirty = true;
  }
}

/** Of the configurations whose node selector matches, the oldest; of equally old ones the first by name. */
function chooseConfiguration(configurations: Iterable<Resource>, nodeLabels: Labels): Resource | undefined {
  const matching = [...configurations].filter((configuration) => {
    const text = (configuration.spec as { readonly nodeSelector?: string } | undefined)?.nodeSelector ?? "";
    const selector = text === "" ? undefined : tryParseSelector(text);
    return selector !== undefined && compileSelector(selector)(lookupIn(nodeLabels));
  });
  const age = ({ metadata }: Resource) => Date.parse(metadata.creationTimestamp ?? "") || 0;
  return matching.sort((a, b) => age(a) - age(b) || (a.metadata.name < b.metadata.name ? -1 : 1))[0];
}
