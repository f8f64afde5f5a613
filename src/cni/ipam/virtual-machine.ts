// Finds the virtual machine that a pod runs. KubeVirt creates a pod for every start of a machine, and for every host that it
// migrates to. The pod is owned by an instance (VirtualMachineInstance), and the instance by the machine (VirtualMachine),
// unless the instance was created without a machine. Machine and instance have the same name.
import { usesKubernetesApi } from "../request/api-config.ts";
import type { OwnerReference } from "../../model/index.ts";
import { CniError, INTERNAL, MissingObject } from "../error.ts";
import type { IpamContext } from "../context.ts";
import type { KubernetesMachine, KubernetesPod } from "../kubernetes/api.ts";

const API_VERSION = "kubevirt.io/v1";
/** Set only on the target pod of a migration. */
const MIGRATION_LABEL = "kubevirt.io/migrationJobUID";

export interface Machine {
  readonly name: string;
  readonly instanceUid: string;
  /** Undefined if the instance was created without a machine. */
  readonly machineUid?: string;
  /** The migration whose target is this pod. */
  readonly migrationUid?: string;
}

/** Returns the machine of a pod that starts; undefined if the pod runs none. */
export async function findPodMachine(context: IpamContext): Promise<Machine | undefined> {
  const { namespace } = context.identity;
  if (!hasKubernetes(context)) return undefined;
  const api = await context.kubernetes();
  const pod = await api.pod(namespace, context.identity.pod);
  const owner = instanceOwner(pod);
  if (owner === undefined) return undefined;
  const { name, uid } = owner;
  const instance = await api.machineInstance(namespace, name);
  if (instance.metadata.uid !== uid)
    throw new CniError(
      INTERNAL,
      `pod ${namespace}/${pod.metadata.name} belongs to instance ${uid} of machine ${name}, which is now ${instance.metadata.uid}`,
      "the pod belongs to an earlier instance: delete the pod",
    );
  const machine = machineOwner(instance);
  const migrationUid = pod.metadata.labels?.[MIGRATION_LABEL] ?? "";
  return {
    name,
    instanceUid: uid,
    machineUid: machine?.uid,
    ...(migrationUid === "" ? {} : { migrationUid }),
  };
}

export interface EndingPodMachine {
  readonly name: string;
  /** True if the machine is deleted or being deleted, so that it will not start again. */
  readonly isEnding: boolean;
}

/**
 * Returns the machine of a pod that ends; undefined if the pod ran none, or does not exist any more. Missing objects are not
 * an error, because a pod must be able to end after its machine was deleted.
 */
export async function findEndingPodMachine(context: IpamContext): Promise<EndingPodMachine | undefined> {
  const { namespace } = context.identity;
  if (!hasKubernetes(context)) return undefined;
  const api = await context.kubernetes();
  const pod = await ifExists(api.pod(namespace, context.identity.pod));
  const owner = pod === undefined ? undefined : instanceOwner(pod);
  if (owner === undefined) return undefined;
  const { name } = owner;
  const instance = await ifExists(api.machineInstance(namespace, name));
  const machineName = instance === undefined ? name : machineOwner(instance)?.name;
  const machine = machineName === undefined ? instance : await ifExists(api.machine(namespace, machineName));
  return { name, isEnding: machine === undefined || machine.metadata.deletionTimestamp !== undefined };
}

/** Without Kubernetes a pod of that name is not treated as a virtual machine's. */
const hasKubernetes = ({ conf, store }: IpamContext): boolean => usesKubernetesApi(conf) || store.name === "kubernetes";

const instanceOwner = ({ metadata }: KubernetesPod): OwnerReference | undefined =>
  metadata.ownerReferences?.find(
    ({ apiVersion, kind, controller }) =>
      apiVersion === API_VERSION && kind === "VirtualMachineInstance" && controller === true,
  );

const machineOwner = ({ metadata }: KubernetesMachine): OwnerReference | undefined =>
  metadata.ownerReferences?.find(
    ({ apiVersion, kind, name }) => apiVersion === API_VERSION && kind === "VirtualMachine" && name !== "",
  );

async function ifExists<T>(object: Promise<T>): Promise<T | undefined> {
  try {
    return await object;
  } catch (error) {
    if (error instanceof MissingObject) return undefined;
    throw error;
  }
}
