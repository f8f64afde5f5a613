// Checks whether KubeVirt virtual machines exist. A virtual machine keeps its addresses when its pods are replaced, so the
// addresses are in use as long as the virtual machine exists.
import { isObjectMissing, type KubeApi, type KubeObject } from "../../datastore/index.ts";
import { ATTRIBUTE } from "../../ipam/index.ts";
import type { Labels } from "../../model/index.ts";

const MIN_GRACE_MS = 5 * 60_000;
const KUBEVIRT = "/apis/kubevirt.io/v1";

/** At least 5 minutes, because a virtual machine may be stopped for a while. */
export const virtualMachineGraceMs = (graceMs: number): number => Math.max(MIN_GRACE_MS, graceMs);

export interface VirtualMachineLookup {
  /** Also true if the answer cannot be determined. */
  exists(attributes: Labels, signal: AbortSignal): Promise<boolean>;
}

export class KubeVirt implements VirtualMachineLookup {
  readonly #api: KubeApi;
  constructor(api: KubeApi) {
    this.#api = api;
  }

  async exists(attributes: Labels, signal: AbortSignal): Promise<boolean> {
    const { [ATTRIBUTE.namespace]: namespace = "", [ATTRIBUTE.vmiName]: name = "" } = attributes;
    if (namespace === "" || name === "" || !(await this.#isInstalled(signal))) return true;
    const item = (plural: string) =>
      `${KUBEVIRT}/namespaces/${encodeURIComponent(namespace)}/${plural}/${encodeURIComponent(name)}`;
    if ((await this.#get(item("virtualmachines"), signal)) !== "absent") return true;
    const instance = await this.#get(item("virtualmachineinstances"), signal);
    if (instance === "absent") return false;
    if (instance === "unknown") return true;
    const owners = (instance.metadata.ownerReferences ?? []) as readonly { readonly kind?: string }[];
    return !owners.some(({ kind }) => kind === "VirtualMachine");
  }

  /** Without KubeVirt's API, a missing virtual machine cannot be distinguished from an existing one. */
  async #isInstalled(signal: AbortSignal): Promise<boolean> {
    try {
      await this.#api.get(KUBEVIRT, { signal });
      return true;
    } catch {
      signal.throwIfAborted();
      return false;
    }
  }

  async #get(path: string, signal: AbortSignal): Promise<KubeObject | "absent" | "unknown"> {
    try {
      return await this.#api.get<KubeObject>(path, { signal });
    } catch (error) {
      signal.throwIfAborted();
      return isObjectMissing(error) ? "absent" : "unknown";
    }
  }
}
