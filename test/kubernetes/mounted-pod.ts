// Mounts the Secrets and ConfigMaps of a manifest's pod as files for a test, and returns the environment of its first
// container. Like a kubelet, replaces all files of a volume at once by renaming a symbolic link.
// https://kubernetes.io/docs/concepts/configuration/secret/#mounted-secrets-are-updated-automatically
import { mkdirSync, mkdtempSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Container, KubernetesObject, Variable, Volume } from "../../scripts/manifests/objects.ts";
import type { KubeApi, KubeObject } from "../../src/datastore/index.ts";
import type { Manifested } from "./accounts.ts";

interface PodSpec {
  readonly containers: readonly Container[];
  readonly volumes?: readonly Volume[];
}
interface Stored extends KubeObject {
  readonly data?: Readonly<Record<string, string>>;
}

export class MountedPod implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), "mounted-pod-"));
  /** The environment, with paths in this folder instead of the container's. */
  readonly env: Readonly<Record<string, string>>;
  readonly #api: KubeApi;
  readonly #volumes: readonly Volume[];
  /** Contents of each volume, as JSON. */
  readonly #mounted = new Map<string, string>();

  constructor(manifest: readonly Manifested[], name: string, api: KubeApi) {
    this.#api = api;
    const objects = manifest as unknown as readonly KubernetesObject[];
    const workload = objects.find(
      ({ kind, metadata }) => ["DaemonSet", "Deployment"].includes(kind) && metadata.name === name,
    );
    if (workload === undefined) throw new Error(`the manifest has no workload ${name}`);
    const { containers, volumes = [] } = (workload["spec"] as { template: { spec: PodSpec } }).template.spec;
    const [container] = containers;
    this.#volumes = volumes.filter(({ secret, configMap }) => secret !== undefined || configMap !== undefined);
    const names = this.#volumes.map((volume) => volume.name);
    const paths = (container?.volumeMounts ?? []).filter((mount) => names.includes(mount.name));
    const config = objects.find(({ kind, metadata }) => kind === "ConfigMap" && metadata.name === "calico-config");
    const settings = (config?.["data"] ?? {}) as Readonly<Record<string, string>>;
    this.env = Object.fromEntries(
      (container?.env ?? []).flatMap((variable) => {
        const text = valueOf(variable, settings);
        if (text === undefined) return [];
        const mount = paths.find(({ mountPath }) => text.startsWith(`${mountPath}/`));
        return [
          [variable.name, mount === undefined ? text : text.replace(mount.mountPath, join(this.folder, mount.name))],
        ];
      }),
    );
  }

  /** Mounts every volume, or replaces the content of those that changed. Throws if an object does not exist. */
  async mount(): Promise<void> {
    const contents = new Map<string, Readonly<Record<string, Buffer>>>();
    for (const { name, secret, configMap } of this.#volumes) {
      const [resource, object, encoding] =
        secret === undefined
          ? (["configmaps", configMap?.name ?? "", "utf8"] as const)
          : (["secrets", secret.secretName, "base64"] as const);
      const { data = {} } = await this.#api.get<Stored>(`/api/v1/namespaces/kube-system/${resource}/${object}`);
      const files = Object.entries(data).map(([key, text]) => [key, Buffer.from(text, encoding)]);
      contents.set(name, Object.fromEntries(files) as Readonly<Record<string, Buffer>>);
    }
    for (const [name, files] of contents) {
      const text = JSON.stringify(files);
      if (this.#mounted.get(name) === text) continue;
      this.#mounted.set(name, text);
      replaceVolume(join(this.folder, name), files);
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true });
  }
}

function valueOf({ value, valueFrom }: Variable, settings: Readonly<Record<string, string>>): string | undefined {
  if (valueFrom === undefined) return value;
  return "configMapKeyRef" in valueFrom ? settings[valueFrom.configMapKeyRef.key] : undefined;
}

let generation = 0;
function replaceVolume(folder: string, files: Readonly<Record<string, Buffer>>): void {
  const data = `..${++generation}`;
  mkdirSync(join(folder, data), { recursive: true });
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, data, name), content);
  const before = linkTarget(join(folder, "..data"));
  symlinkSync(data, join(folder, "..data_tmp"));
  renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
  if (before !== undefined) rmSync(join(folder, before), { recursive: true });
  for (const name of Object.keys(files))
    if (linkTarget(join(folder, name)) === undefined) symlinkSync(join("..data", name), join(folder, name));
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
