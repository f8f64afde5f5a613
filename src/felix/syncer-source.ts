// Opens the source of datastore updates: the datastore itself, or Typha.
import { createSyncer, DedupeBuffer, type Syncer, type SyncerSink } from "../datastore/index.ts";
import { BUILD } from "../lib/process/build.ts";
import type { Logger } from "../lib/log/log.ts";
import { createTyphaSyncer, type TyphaSettings, TyphaUnreachable } from "../typha/index.ts";
import type { FelixConfig } from "../model/index.ts";
import { type Environment, isLeader } from "./config/index.ts";
import type { Loaded } from "./load-config.ts";
import type { WireguardStart } from "./wireguard-start.ts";

/** Timeout of the first connection to Typha. After it, Felix exits and the supervisor restarts it. */
const FIRST_CONNECTION_TIMEOUT_MS = 30_000;

/** Returns undefined if neither an address nor a service of Typha is configured. */
function typhaSettings(config: FelixConfig): TyphaSettings | undefined {
  if (config.TyphaAddr === "" && config.TyphaK8sServiceName === "") return undefined;
  const { TyphaKeyFile: keyFile, TyphaCertFile: certFile, TyphaCAFile: caFile } = config;
  const hasTls = keyFile !== ""; // `checkConfig` has verified that the other TLS settings are set too
  return {
    ...(config.TyphaAddr !== "" && { address: config.TyphaAddr }),
    ...(config.TyphaK8sServiceName !== "" && { serviceName: config.TyphaK8sServiceName }),
    namespace: config.TyphaK8sNamespace,
    readTimeoutMs: config.TyphaReadTimeout * 1000,
    writeTimeoutMs: config.TyphaWriteTimeout * 1000,
    ...(hasTls && {
      tls: {
        keyFile,
        certFile,
        caFile,
        ...(config.TyphaCN !== "" && { commonName: config.TyphaCN }),
        ...(config.TyphaURISAN !== "" && { uriSan: config.TyphaURISAN }),
      },
    }),
  };
}

/** A syncer that can connect before its receiver is ready. */
export interface Source extends Syncer {
  /** Starts to receive updates, which are buffered until `run` is called. */
  begin(signal: AbortSignal): void;
}

export async function openSource(options: {
  readonly loaded: Loaded;
  readonly env: Environment;
  readonly log: Logger;
  readonly firstConnectionTimeoutMs?: number;
  /** Set if host traffic may be encrypted, which can prevent the connection to Typha. */
  readonly wireguard?: Pick<WireguardStart, "chooseTyphas" | "removeEncryption">;
}): Promise<Source> {
  const { loaded, env, wireguard } = options;
  const { engine, store, usePodCidr } = loaded;
  const { config } = engine;
  const log = options.log.with({ part: "syncer" });
  const typha = typhaSettings(config);
  if (typha !== undefined) {
    const syncer = await createTyphaSyncer({
      firstConnectionTimeoutMs: options.firstConnectionTimeoutMs ?? FIRST_CONNECTION_TIMEOUT_MS,
      choose: wireguard === undefined ? undefined : (servers) => wireguard.chooseTyphas(servers),
      settings: typha,
      syncer: "felix",
      hostname: config.FelixHostname,
      info: "felix",
      version: BUILD.version,
      log,
      env,
    });
    return {
      begin: () => {},
      get viewAgeMs() {
        return syncer.viewAgeMs;
      },
      run: async (sink, signal) => {
        try {
          await syncer.run(sink, signal);
        } catch (error) {
          // The host's own encryption may be the cause. The next start connects without it.
          if (error instanceof TyphaUnreachable) await wireguard?.removeEncryption();
          throw error;
        }
      },
    };
  }
  const direct = createSyncer("felix", store, {
    hostname: config.FelixHostname,
    usePodCidr,
    isLeader: isLeader(config),
    log,
  });
  return new DirectSource(direct);
}

/** The datastore's syncer with a buffer that merges updates of the same key while the receiver is busy. */
class DirectSource implements Source {
  readonly #syncer: Syncer;
  readonly #buffer = new DedupeBuffer({ onUnreadable: (path, reason) => this.#onUnreadable(path, reason) });
  readonly #unreadable: (readonly [path: string, reason: string])[] = [];
  #sink: SyncerSink | undefined;
  #running: Promise<void> | undefined;

  constructor(syncer: Syncer) {
    this.#syncer = syncer;
  }

  get viewAgeMs(): number {
    return this.#syncer.viewAgeMs;
  }

  begin(signal: AbortSignal): void {
    this.#running = this.#syncer.run(this.#buffer, signal);
    this.#running.catch(() => {}); // `run` throws the error
  }

  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    this.#sink = sink;
    for (const [path, reason] of this.#unreadable.splice(0)) sink.onUnreadable?.(path, reason);
    await Promise.all([this.#buffer.run(sink, signal), this.#running ?? this.#syncer.run(this.#buffer, signal)]);
  }

  #onUnreadable(path: string, reason: string): void {
    if (this.#sink === undefined) this.#unreadable.push([path, reason]);
    else this.#sink.onUnreadable?.(path, reason);
  }
}
