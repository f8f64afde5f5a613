// Where Typha is: at a given address, or behind a Kubernetes service. Endpoints on our own node come first, each group in
// random order; every attempt looks again, and an address that was tried is left alone until all have been.
import type { FelixConfig } from "../config/index.ts";

export interface TyphaEndpoint {
  /** `10.0.0.1:5473` or `[fd00::1]:5473`. */
  readonly address: string;
  readonly node?: string;
}

/** The slices of one service, as far as they matter here. */
export interface ServiceSlice {
  readonly ports?: readonly { readonly name?: string; readonly port?: number }[];
  readonly endpoints?: readonly {
    readonly addresses?: readonly string[];
    readonly nodeName?: string;
    readonly conditions?: { readonly ready?: boolean };
  }[];
}

export interface DiscoveryOptions {
  readonly settings: Pick<FelixConfig, "TyphaAddr" | "TyphaK8sServiceName" | "TyphaK8sNamespace">;
  readonly node: string;
  readonly listSlices: (namespace: string, service: string) => Promise<readonly ServiceSlice[]>;
  readonly random?: () => number;
}

const PORT_NAME = "calico-typha";

export class NoTypha extends Error {
  override readonly name = "NoTypha";
}

export const usesTypha = (settings: Pick<FelixConfig, "TyphaAddr" | "TyphaK8sServiceName">): boolean =>
  settings.TyphaAddr !== "" || settings.TyphaK8sServiceName !== "";

/** In the order to try them. @throws NoTypha when the service has none that is ready */
export async function discoverTypha(options: DiscoveryOptions): Promise<readonly TyphaEndpoint[]> {
  const { settings, node, random = Math.random } = options;
  if (settings.TyphaAddr !== "") return [{ address: settings.TyphaAddr }];
  const { TyphaK8sNamespace: namespace, TyphaK8sServiceName: service } = settings;
  const slices = await options.listSlices(namespace, service);
  const all = slices.flatMap(endpointsOf);
  if (all.length === 0)
    throw new NoTypha(`service ${namespace}/${service} has no ready endpoint with port ${PORT_NAME}`);
  const isLocal = (endpoint: TyphaEndpoint) => endpoint.node === node;
  return [
    ...shuffle(all.filter(isLocal), random),
    ...shuffle(
      all.filter((endpoint) => !isLocal(endpoint)),
      random,
    ),
  ];
}

function endpointsOf(slice: ServiceSlice): TyphaEndpoint[] {
  const port = slice.ports?.find(({ name }) => name === PORT_NAME)?.port;
  if (port === undefined) return [];
  return (slice.endpoints ?? []).flatMap(({ addresses = [], nodeName, conditions }) =>
    conditions?.ready === false
      ? []
      : addresses.map((ip) => ({
          address: ip.includes(":") ? `[${ip}]:${port}` : `${ip}:${port}`,
          ...(nodeName !== undefined && { node: nodeName }),
        })),
  );
}

function shuffle<T>(list: readonly T[], random: () => number): T[] {
  const out = [...list];
  for (let i = out.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    const [a, b] = [out[i], out[j]];
    if (a !== undefined && b !== undefined) [out[i], out[j]] = [b, a];
  }
  return out;
}

const FORGET_MS = 300_000;

/** Chooses the next address to try. */
export class TyphaPicker {
  readonly #discover: () => Promise<readonly TyphaEndpoint[]>;
  readonly #now: () => number;
  readonly #tried = new Map<string, number>();

  constructor(discover: () => Promise<readonly TyphaEndpoint[]>, now: () => number = Date.now) {
    this.#discover = discover;
    this.#now = now;
  }

  async next(): Promise<TyphaEndpoint> {
    const endpoints = await this.#discover();
    for (const [address, at] of this.#tried) if (this.#now() - at > FORGET_MS) this.#tried.delete(address);
    let choice = endpoints.find(({ address }) => !this.#tried.has(address));
    if (choice === undefined) {
      this.#tried.clear();
      choice = endpoints[0];
    }
    if (choice === undefined) throw new NoTypha("Typha has no address");
    this.#tried.set(choice.address, this.#now());
    return choice;
  }
}
