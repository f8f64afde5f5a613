// Watches the Kubernetes Secrets that contain session passwords, in one namespace. Only Secrets in use are watched.
import { Informer, type KubeApi, type KubeObject } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { SecretRef } from "../../model/index.ts";

/** How long a plan waits for the first read of a new Secret. */
const FIRST_READ_MS = 500;

export interface PasswordSource {
  /** Returns undefined if the Secret or the key does not exist. */
  get(ref: SecretRef): string | undefined;
  /** Sets the watched Secrets. Resolves when they have been read, or after a short timeout. */
  watch(refs: readonly SecretRef[]): Promise<void>;
}

export const noPasswords: PasswordSource = { get: () => undefined, watch: async () => {} };

export class KubernetesSecrets implements PasswordSource {
  readonly #api: KubeApi;
  readonly #namespace: string;
  readonly #onChange: () => void;
  readonly #log: Logger;
  readonly #signal: AbortSignal;
  readonly #watched = new Map<string, { readonly secrets: Informer<KubeObject>; readonly abort: AbortController }>();

  constructor(options: {
    readonly api: KubeApi;
    readonly namespace: string;
    readonly onChange: () => void;
    readonly log: Logger;
    readonly signal: AbortSignal;
  }) {
    this.#api = options.api;
    this.#namespace = options.namespace;
    this.#onChange = options.onChange;
    this.#log = options.log;
    this.#signal = options.signal;
  }

  get({ name, key }: SecretRef): string | undefined {
    const [secret] = this.#watched.get(name)?.secrets.values() ?? [];
    const data =
      (secret as (KubeObject & { readonly data?: Readonly<Record<string, unknown>> }) | undefined)?.data ?? {};
    const encoded = Object.hasOwn(data, key) ? data[key] : undefined;
    return typeof encoded === "string" ? Buffer.from(encoded, "base64").toString("utf8") : undefined;
  }

  async watch(refs: readonly SecretRef[]): Promise<void> {
    const names = new Set(refs.map(({ name }) => name));
    for (const [name, { abort }] of this.#watched) {
      if (names.has(name)) continue;
      abort.abort();
      this.#watched.delete(name);
    }
    const started = [...names].filter((name) => !this.#watched.has(name)).map((name) => this.#start(name));
    if (started.length === 0) return;
    await Promise.race([Promise.all(started), Bun.sleep(FIRST_READ_MS)]);
  }

  #start(name: string): Promise<void> {
    const path = `/api/v1/namespaces/${encodeURIComponent(this.#namespace)}/secrets`;
    const secrets = new Informer({
      api: this.#api,
      path,
      only: { name },
      keep: (object) => object,
      log: this.#log.with({ secret: name }),
    });
    secrets.listen(this.#onChange);
    const abort = new AbortController();
    this.#watched.set(name, { secrets, abort });
    void secrets.run(AbortSignal.any([abort.signal, this.#signal]));
    return secrets.synced;
  }
}
