// Finds etcd's endpoints (configured, or discovered in DNS), loads the TLS certificates, and tries one endpoint after the
// other until one answers or the timeout has passed.
import { readFileSync } from "node:fs";
import { backoffDelay, delay } from "../../lib/retry.ts";
import type { EtcdConfig, EtcdTls, PemSource } from "../config.ts";
import { InvalidConfig, Unavailable } from "../errors.ts";
import { AttemptFailed, AttemptTimedOut, CertificateRejected } from "./failures.ts";

export interface Endpoint {
  /** Scheme, host and port, for messages. */
  readonly url: string;
  readonly secure: boolean;
  readonly host: string;
  readonly port: number;
}

function parseEndpoint(text: string, secureByDefault: boolean): Endpoint {
  const withScheme = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `${secureByDefault ? "https" : "http"}://${text}`;
  // The URL is not printed, because it contains a password.
  if (text.includes("@"))
    throw new InvalidConfig(
      "an etcd endpoint contains a user (user@host); set ETCD_USERNAME and ETCD_PASSWORD instead",
    );
  const url = URL.canParse(withScheme) ? new URL(withScheme) : undefined;
  if (url === undefined || url.hostname === "" || !["http:", "https:"].includes(url.protocol))
    throw new InvalidConfig(`etcd endpoint ${JSON.stringify(text)}: want http://host:2379 or https://host:2379`);
  const secure = url.protocol === "https:";
  const port = url.port === "" ? (secure ? 443 : 80) : Number(url.port);
  return { url: `${url.protocol}//${url.host}`, secure, host: url.hostname, port };
}

/** Returns the configured endpoints, or those of the domain's SRV records, with TLS first. */
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

/** Reads the certificates. Called for every connection, because the files may have been renewed. */
export function loadTls(tls: EtcdTls | undefined): TlsMaterial {
  const load = (what: string, source: PemSource | undefined): Buffer | undefined => {
    if (source === undefined) return undefined;
    if ("pem" in source) return pemOf(what, Buffer.from(source.pem), "the configured value");
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

/** Checks the format here, because the errors of TLS libraries do not contain the file's name. */
function pemOf(what: string, bytes: Buffer, where: string): Buffer {
  if (!bytes.includes("-----BEGIN "))
    throw new InvalidConfig(`etcd ${what}: ${where} is not in PEM format (-----BEGIN …)`);
  return bytes;
}

const BACKOFF = { firstMs: 50, maxMs: 1000, jitter: 0.3 };

/** Uses the endpoint that answered last, and the next one when it fails. */
export class EndpointFailover {
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

  /** Changes to the next endpoint, unless `endpoint` is no longer the current one. */
  leave(endpoint: Endpoint): void {
    if (this.current === endpoint) this.advance();
  }

  /** Tries one endpoint after the other. A request that may have been executed is sent again only if it is repeatable. */
  async run<T>(
    options: {
      readonly timeoutMs: number;
      readonly signal?: AbortSignal;
      readonly repeatable: boolean;
      /** Called after an attempt whose answer was lost: the request may have been executed. */
      readonly onLostAnswer?: () => void;
    },
    attempt: (endpoint: Endpoint, budgetMs: number) => Promise<T>,
  ): Promise<T> {
    const started = performance.now();
    const reasons = new Map<string, string>();
    const rejectedUrls = new Set<string>();
    for (let tries = 0; ; tries++) {
      options.signal?.throwIfAborted();
      const endpoint = this.current;
      const leftMs = options.timeoutMs - (performance.now() - started);
      // The remaining time is shared among the endpoints not tried yet, so that a silent endpoint does not use all of it.
      const untried = Math.max(1, this.#endpoints.length - reasons.size);
      try {
        return await attempt(endpoint, Math.max(1, leftMs / untried));
      } catch (error) {
        if (!(error instanceof AttemptFailed)) throw error;
        this.advance();
        if (error.mayHaveRun) options.onLostAnswer?.();
        // A timeout at the end may only mean that no time was left: keep the reason of an earlier attempt.
        if (!(error instanceof AttemptTimedOut && reasons.has(endpoint.url))) reasons.set(endpoint.url, error.reason);
        const round = Math.floor((tries + 1) / this.#endpoints.length);
        const waitMs = (tries + 1) % this.#endpoints.length === 0 ? backoffDelay(BACKOFF, round) : 0;
        const spentMs = performance.now() - started;
        if (error instanceof CertificateRejected) rejectedUrls.add(endpoint.url);
        else rejectedUrls.delete(endpoint.url);
        const final = (error.mayHaveRun && !options.repeatable) || rejectedUrls.size === this.#endpoints.length;
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
