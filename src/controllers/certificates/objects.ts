// The Secrets and ConfigMaps that hold certificates, and who manages them. An object without the label below was supplied
// by the user, and is never written.
import { isObjectMissing, type KubeApi, type KubeObject } from "../../datastore/index.ts";

/** Where a certificate with its key is stored: `tls.crt` and `tls.key` of a Secret of type kubernetes.io/tls. */
export interface Secret extends KubeObject {
  readonly type?: string;
  readonly data?: Readonly<Record<string, string>>;
}
/** Where the certificates to trust are stored. */
export interface ConfigMap extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

const TLS_TYPE = "kubernetes.io/tls";
const MANAGED_BY = { "app.kubernetes.io/managed-by": "calico-kube-controllers" } as const;
const [LABEL, MANAGER] = Object.entries(MANAGED_BY)[0] ?? ["", ""];

export const isManaged = ({ metadata }: KubeObject): boolean => metadata.labels?.[LABEL] === MANAGER;

/** Text of a key of a Secret; empty if there is none. */
export const secretText = (secret: Secret, key: string): string =>
  Buffer.from(secret.data?.[key] ?? "", "base64").toString("utf8");

export class CertificateObjects {
  readonly #api: KubeApi;
  readonly #namespace: string;

  constructor(api: KubeApi, namespace: string) {
    this.#api = api;
    this.#namespace = namespace;
  }

  secret(name: string, signal: AbortSignal): Promise<Secret | undefined> {
    return this.#get<Secret>("secrets", name, signal);
  }
  configMap(name: string, signal: AbortSignal): Promise<ConfigMap | undefined> {
    return this.#get<ConfigMap>("configmaps", name, signal);
  }

  /** @param before what was read; the write fails if it was changed or created since */
  async writeSecret(
    name: string,
    before: Secret | undefined,
    texts: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<void> {
    const data = Object.fromEntries(
      Object.entries(texts).map(([key, text]) => [key, Buffer.from(text, "utf8").toString("base64")]),
    );
    await this.#write("secrets", { kind: "Secret", type: TLS_TYPE }, name, before, data, signal);
  }

  async writeConfigMap(
    name: string,
    before: ConfigMap | undefined,
    data: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#write("configmaps", { kind: "ConfigMap" }, name, before, data, signal);
  }

  async #get<T extends KubeObject>(resource: string, name: string, signal: AbortSignal): Promise<T | undefined> {
    try {
      return await this.#api.get<T>(this.#path(resource, name), { signal });
    } catch (error) {
      if (isObjectMissing(error)) return undefined;
      throw error;
    }
  }

  async #write(
    resource: string,
    type: object,
    name: string,
    before: KubeObject | undefined,
    data: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<void> {
    if (before === undefined) {
      const metadata = { name, namespace: this.#namespace, labels: MANAGED_BY };
      const body = { apiVersion: "v1", ...type, metadata, data };
      await this.#api.json({ method: "POST", path: this.#path(resource), body, signal });
      return;
    }
    // Other labels and annotations stay. The resource version makes the API server reject a lost update.
    await this.#api.json({ method: "PUT", path: this.#path(resource, name), body: { ...before, data }, signal });
  }

  #path(resource: string, name?: string): string {
    const collection = `/api/v1/namespaces/${encodeURIComponent(this.#namespace)}/${resource}`;
    return name === undefined ? collection : `${collection}/${encodeURIComponent(name)}`;
  }
}
