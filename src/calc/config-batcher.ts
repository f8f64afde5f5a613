// Collects Felix's settings from the datastore in three layers of raw values: global, selected by node labels, and of
// this host. Emits all layers together after the first complete list, and again after each change.
import {
  ignoreUnreadable,
  type Labels,
  type Node,
  type NodeSelector,
  readFelixConfiguration,
  type Resource,
} from "../model/index.ts";

export type RawConfig = Readonly<Record<string, string>>;
export interface ConfigLayers {
  readonly global: RawConfig;
  readonly selector: RawConfig;
  readonly host: RawConfig;
}

export interface ConfigListener {
  onConfig(layers: ConfigLayers): void;
  /** The `ready` flag of the datastore is false or was deleted. */
  onNotReady(): void;
}

/** A FelixConfiguration with a node selector. */
interface SelectedConfiguration {
  readonly resource: Resource;
  readonly nodes: NodeSelector;
}

export class ConfigBatcher {
  readonly #host: string;
  readonly #listener: ConfigListener;
  readonly #toRaw: (configuration: Resource) => RawConfig;
  readonly #globalValues = new Map<string, string>();
  readonly #hostValues = new Map<string, string>();
  readonly #selected = new Map<string, SelectedConfiguration>();
  #nodeLabels: Labels | undefined;
  #isReady = false;
  #isInSync = false;
  #emittedLayers: ConfigLayers | undefined;
  #emittedReady: boolean | undefined;
  #isDirty = true;

  /** @param options.toRaw converts the fields of a FelixConfiguration to raw values, as in the other layers */
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
    this.#set(this.#globalValues, name, value);
  }
  setHost(host: string, name: string, value: string | undefined): void {
    if (host === this.#host) this.#set(this.#hostValues, name, value);
  }
  setReady(isReady: boolean): void {
    if (isReady === this.#isReady) return;
    this.#isReady = isReady;
    this.#isDirty = true;
  }
  setNode(name: string, node: Node | undefined): void {
    if (name !== this.#host) return;
    this.#nodeLabels = node?.labels;
    this.#isDirty = true;
  }
  /** Ignores `default` and `node.<name>`, which arrive as the global and the host layer. */
  setConfiguration(name: string, resource: Resource | undefined): void {
    if (name === "default" || name.startsWith("node.")) return;
    const nodes = resource && readFelixConfiguration(resource, ignoreUnreadable).nodeSelector;
    if (resource === undefined || nodes === undefined) this.#selected.delete(name);
    else this.#selected.set(name, { resource, nodes });
    this.#isDirty = true;
  }
  setInSync(): void {
    this.#isInSync = true;
  }

  flush(): void {
    if (!this.#isInSync || !this.#isDirty) return;
    this.#isDirty = false;
    if (!this.#isReady && this.#emittedReady !== false) this.#listener.onNotReady();
    this.#emittedReady = this.#isReady;
    const layers: ConfigLayers = {
      global: Object.fromEntries(this.#globalValues),
      selector: this.#selectorLayer(),
      host: Object.fromEntries(this.#hostValues),
    };
    if (Bun.deepEquals(layers, this.#emittedLayers, true)) return;
    this.#emittedLayers = layers;
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

/** Returns the oldest configuration whose node selector matches; of equally old ones, the first by name. */
function chooseConfiguration(
  configurations: Iterable<SelectedConfiguration>,
  nodeLabels: Labels,
): Resource | undefined {
  const matching = [...configurations].flatMap(({ resource, nodes }) => (nodes.matches(nodeLabels) ? [resource] : []));
  const age = ({ metadata }: Resource) => Date.parse(metadata.creationTimestamp ?? "") || 0;
  return matching.sort((a, b) => age(a) - age(b) || (a.metadata.name < b.metadata.name ? -1 : 1))[0];
}
