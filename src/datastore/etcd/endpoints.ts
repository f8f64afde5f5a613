// Where etcd answers: endpoints named or discovered, the certificates to show, and the walk from one endpoint to the
// next until somebody answers or the time is up.
import { readFileSync } from "node:fs";
import { backoffDelay, delay } from "../../lib/retry.ts";
import type { EtcdConfig, EtcdTls, PemSource } from "../config.ts";
import { InvalidConfig, Unavailable } from "../errors.ts";
import { AttemptFailed, AttemptTimedOut, CertificateRefused } from "./failures.ts";

export interface Endpoint {
  /** As it was given, for messages. */
  readonly url: string;
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

function parseEndpoint(text: string, secureByDefault: boolean): Endpoint {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `${secureByDefault ? "https" : "http"}://${text}`;
  // Neither used nor shown: a name and password have settings of their own.
  if (text.includes("@"))
    throw new InvalidConfig("an etcd endpoint holds a user (user@host): set ETCD_USERNAME and ETCD_PASSWORD instead");
  const url = URL.canParse(withScheme) ? new URL(withScheme) : undefined;
  if (url === undefined || url.hostname === "" || !["http:", "https:"].includes(url.protocol))
    throw new InvalidConfig(`etcd endpoint ${JSON.stringify(text)}: want http://host:2379 or https://host:2379`);
  const secure = url.protocol === "https:";
  const port = url.port === "" ? (secure ? 443 : 80) : Number(url.port);
  return { url: `${url.protocol}//${url.host}`, secure, host: url.hostname, port };
}

/** Named endpoints, or those that DNS lists for the domain, those with TLS first. */
export async function findEndpoints(config: EtcdConfig, resolveSrv?: ResolveSrv): Promise<readonly Endpoint[]> {
  const { discoverySrv: domain } = config;
  if (domain === undefined) return config.endpoints.map((text) => parseEndpoint(text, config.tls !== undefined));
  const resolve = resolveSrv ?? (await import("node:dns/promises")).resolveSrv;
  const found: Endpoint[] = [];
  const faults: string[] = [];
  for (const [service, scheme] of [
    ["_etcd-client-ssl", "https"],
    ["_etcd-client", "http"],
  ]) {
    try {
      const records = await resolve(`${service}._tcp.${domain}`);
      const sorted = [...records].sort((a, b) => a.priority - b.priority || b.weight - a.weight);
      for (const { name, port } of sorted)
        found.push(parseEndpoint(`${scheme}://${name.replace(/\.$/, "")}:${port}`, false));
    } catch (error) {
      faults.push(error instanceof Error ? error.message : String(error));
    }
  }
  if (found.length === 0) throw new Unavailable(`etcd of ${domain}`, `no service records found: ${faults.join("; ")}`);
  return found;
}

export type ResolveSrv = (
  name: string,
) => Promise<readonly { name: string; port: number; priority: number; weight: number }[]>;

export interface TlsMaterial {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/** Reads the certificates now; files may have been renewed since last time. */
export function loadTls(tls: EtcdTls | undefined): TlsMaterial {
  const load = (what: string, source: PemSource | undefined): Buffer | undefined => {
    if (source === undefined) return undefined;
    if ("pem" in source) return pemOf(what, Buffer.from(source.pem), "what the configuration says");
    let bytes: Buffer;
    try {
      bytes = readFileSync(source.file);
    } catch (error) {
      throw new InvalidConfig(`etcd ${what}: cannot read ${source.file}`, { cause: error });
    }
    return pemOf(what, bytes, source.file);
  };
  const ca = load("CA certificate", tls?.ca);
  const cert = load("client certificate", tls?.cert);
  const key = load("client key", tls?.key);
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
}

/** Told here by name: TLS libraries only say that something was no PEM. */
function pemOf(what: string, bytes: Buffer, where: string): Buffer {
  if (!bytes.includes("-----BEGIN ")) throw new InvalidConfig(`etcd ${what}: ${where} is no PEM (-----BEGIN …)`);
  return bytes;
}

const BACKOFF = { firstMs: 50, maxMs: 1000, jitter: 0.3 };

/** Remembers which endpoint answered last, and asks the others when it does not. */
export class EndpointWalk {
  readonly #endpoints: readonly Endpoint[];
  #current = 0;

  constructor(endpoints: readonly Endpoint[]) {
    this.#endpoints = endpoints;
  }

  get current(): Endpoint {
    const endpoint = this.#endpoints[this.#current % this.#endpoints.length];
    if (endpoint === undefined) throw new InvalidConfig("no etcd endpoints specified");
    return endpoint;
  }

  advance(): void {
    this.#current++;
  }

  /** Moves on to the next endpoint, unless that has happened since `endpoint` was used. */
  leave(endpoint: Endpoint): void {
    if (this.current === endpoint) this.advance();
  }

  /** Tries endpoint after endpoint. What may have been carried out is repeated only when that does no harm. */
  async run<T>(
    options: {
      readonly timeoutMs: number;
      readonly signal?: AbortSignal;
      readonly repeatable: boolean;
      /** An attempt came to nothing that may have been carried out. */
      readonly onLost?: () => void;
    },
    attempt: (endpoint: Endpoint, budgetMs: number) => Promise<T>,
  ): Promise<T> {
    const started = performance.now();
    const reasons = new Map<string, string>();
    const refused = new Set<string>();
    for (let tries = 0; ; tries++) {
      options.signal?.throwIfAborted();
      const endpoint = this.current;
      const leftMs = options.timeoutMs - (performance.now() - started);
      // A silent endpoint may use up only its share of the time.
      const unheard = Math.max(1, this.#endpoints.length - reasons.size);
      try {
        return await attempt(endpoint, Math.max(1, leftMs / unheard));
      } catch (error) {
        if (!(error instanceof AttemptFailed)) throw error;
        this.advance();
        if (error.mayHaveRun) options.onLost?.();
        // The last try may have had no time left: what an earlier one found out tells more.
        if (!(error instanceof AttemptTimedOut && reasons.has(endpoint.url))) reasons.set(endpoint.url, error.reason);
        const round = Math.floor((tries + 1) / this.#endpoints.length);
        const waitMs = (tries + 1) % this.#endpoints.length === 0 ? backoffDelay(BACKOFF, round) : 0;
        const spentMs = performance.now() - started;
        if (error instanceof CertificateRefused) refused.add(endpoint.url);
        else refused.delete(endpoint.url);
        const final = (error.mayHaveRun && !options.repeatable) || refused.size === this.#endpoints.length;
        if (final || spentMs + waitMs >= options.timeoutMs) throw this.#unavailable(reasons, spentMs, error);
        if (waitMs > 0) await delay(waitMs, options.signal);
      }
    }
  }

  #unavailable(reasons: ReadonlyMap<string, string>, spentMs: number, cause: Error): Unavailable {
    const urls = [...reasons.keys()].join(", ");
    const texts = [...new Set(reasons.values())].join("; ");
    return new Unavailable(urls, `${texts} (tried for ${(spentMs / 1000).toFixed(1)} s)`, { cause });
  }
}
