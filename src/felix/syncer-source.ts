// Where the agent's picture of the cluster comes from: the datastore, or a Typha in front of it.
import { createSyncer, DedupeBuffer, type Syncer, type SyncerSink } from "../datastore/index.ts";
import { BUILD } from "../lib/build.ts";
import type { Logger } from "../lib/log.ts";
import { createTyphaSyncer, type TyphaSettings, TyphaUnreachable } from "../typha/index.ts";
import { type Environment, type FelixConfig, isLeader } from "./config/index.ts";
import type { Loaded } from "./load-config.ts";
import type { WireguardStart } from "./wireguard-start.ts";

/** How long the first connection to Typha may take; whoever started the agent starts it again. */
const GIVE_UP_MS = 30_000;

/** Nothing when neither an address nor a service of Typha is set. */
function typhaOf(config: FelixConfig): TyphaSettings | undefined {
  if (config.TyphaAddr === "" && config.TyphaK8sServiceName === "") return undefined;
  const { TyphaKeyFile: keyFile, TyphaCertFile: certFile, TyphaCAFile: caFile } = config;
  const hasTls = keyFile !== ""; // that the rest is there too was checked with all settings
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

/** A syncer that can begin before anybody hears it. */
export interface Source extends Syncer {
  /** Asks already; what comes is kept until `run`. */
  begin(signal: AbortSignal): void;
}

export async function openSource(given: {
  readonly loaded: Loaded;
  readonly env: Environment;
  readonly log: Logger;
  /** What stands between us and Typha, when host traffic is encrypted. */
  readonly giveUpMs?: number;
  readonly wireguard?: Pick<WireguardStart, "chooseTyphas" | "giveUp">;
}): Promise<Source> {
  const { loaded, env, wireguard } = given;
  const { engine, store, usePodCidr } = loaded;
  const { config } = engine;
  const log = given.log.with({ part: "syncer" });
  const typha = typhaOf(config);
  if (typha !== undefined) {
    const syncer = await createTyphaSyncer({
      giveUpMs: given.giveUpMs ?? GIVE_UP_MS,
      ...(wireguard !== undefined && { choose: (found) => wireguard.chooseTyphas(found) }),
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
          // Perhaps it is our own encryption that keeps us from it. The next start tries without.
          if (error instanceof TyphaUnreachable) await wireguard?.giveUp();
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

/** The datastore's own syncer with a buffer behind it, which joins what its reader has no time for. */
class DirectSource implements Source {
  readonly #syncer: Syncer;
  readonly #buffer = new DedupeBuffer({ onUnreadable: (path, reason) => this.#onUnreadable(path, reason) });
  readonly #unreadable: (readonly [path: string, reason: string])[] = [];
  #sink: SyncerSink | undefined;
  #following: Promise<void> | undefined;

  constructor(syncer: Syncer) {
    this.#syncer = syncer;
  }

  get viewAgeMs(): number {
    return this.#syncer.viewAgeMs;
  }

  begin(signal: AbortSignal): void {
    this.#following = this.#syncer.run(this.#buffer, signal);
    this.#following.catch(() => {}); // `run` tells
  }

  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    this.#sink = sink;
    for (const [path, reason] of this.#unreadable.splice(0)) sink.onUnreadable?.(path, reason);
    await Promise.all([this.#buffer.run(sink, signal), this.#following ?? this.#syncer.run(this.#buffer, signal)]);
  }

  #onUnreadable(path: string, reason: string): void {
    if (this.#sink === undefined) this.#unreadable.push([path, reason]);
    else this.#sink.onUnreadable?.(path, reason);
  }
}
