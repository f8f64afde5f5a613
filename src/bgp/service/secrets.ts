// Passwords of sessions, from Kubernetes' Secrets of one namespace. Only secrets that some session names are followed.
import { Informer, type KubeApi, type KubeObject } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { SecretRef } from "../../model/index.ts";

/** How long a plan waits for a secret it has not seen before. */
const FIRST_READ_MS = 500;

export interface PasswordSource {
  /** Undefined when there is no such secret, or none of that key. */
  get(ref: SecretRef): string | undefined;
  /** From now on these are wanted, and no others. Resolves when they have been looked for. */
  follow(refs: readonly SecretRef[]): Promise<void>;
}

export const noPasswords: PasswordSource = { get: () => undefined, follow: async () => {} };

export class KubernetesSecrets implements PasswordSource {
  readonly #api: KubeApi;
  readonly #namespace: string;
  readonly #onChange: () => void;
  readonly #log: Logger;
  readonly #signal: AbortSignal;
  readonly #followed = new Map<string, { readonly secrets: Informer<KubeObject>; readonly abort: AbortController }>();

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
    const [secret] = this.#followed.get(name)?.secrets.values() ?? [];
    const data =
      (secret as (KubeObject & { readonly data?: Readonly<Record<string, unknown>> }) | undefined)?.data ?? {};
    const encoded = Object.hasOwn(data, key) ? data[key] : undefined;
    return typeof encoded === "string" ? Buffer.from(encoded, "base64").toString("utf8") : undefined;
  }

  async follow(refs: readonly SecretRef[]): Promise<void> {
    const wanted = new Set(refs.map(({ name }) => name));
    for (const [name, { abort }] of this.#followed) {
      if (wanted.has(name)) continue;
      abort.abort();
      this.#followed.delete(name);
    }
    const started = [...wanted].filter((name) => !this.#followed.has(name)).map((name) => this.#start(name));
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
    this.#followed.set(name, { secrets, abort });
    void secrets.run(AbortSignal.any([abort.signal, this.#signal]));
    return secrets.synced;
  }
}
