// Virtual machines keep their addresses while their pods come and go: an address of one lives as long as the machine.
import type { KubeApi, KubeObject } from "../../datastore/index.ts";
import { ATTRIBUTE } from "../../ipam/index.ts";
import type { Labels } from "../../model/index.ts";
import { codeOf } from "../status-code.ts";

const MIN_GRACE_MS = 5 * 60_000;
const KUBEVIRT = "/apis/kubevirt.io/v1";

/** A machine may be stopped for a while. */
export const machineGraceMs = (graceMs: number): number => Math.max(MIN_GRACE_MS, graceMs);

export interface MachineLookup {
  /** Also true when it cannot be told. */
  exists(attributes: Labels, signal: AbortSignal): Promise<boolean>;
}

export class KubeVirtMachines implements MachineLookup {
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

  /** Without KubeVirt nobody can say that a machine is gone. */
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
      return codeOf(error) === 404 ? "absent" : "unknown";
    }
  }
}
