// The virtual machine a pod runs. KubeVirt starts a pod for every life of a machine, and for every host it moves to: the
// pod is owned by an instance (VirtualMachineInstance), and that by the machine (VirtualMachine), unless somebody made the
// instance alone. Machine and instance have one name.
import { usesKubernetesApi } from "../request/api-config.ts";
import type { OwnerReference } from "../../model/index.ts";
import { CniError, INTERNAL, MissingObject } from "../error.ts";
import type { IpamContext } from "../context.ts";
import type { KubernetesMachine, KubernetesPod } from "../kubernetes/api.ts";

const API_VERSION = "kubevirt.io/v1";
/** Only on the pod a machine moves to. */
const MIGRATION_LABEL = "kubevirt.io/migrationJobUID";

export interface Machine {
  readonly name: string;
  readonly instanceUid: string;
  /** Absent where the instance was made alone. */
  readonly machineUid?: string;
  /** The move that ends in this pod. */
  readonly migrationUid?: string;
}

/** The machine of a pod that starts; undefined when it runs none. */
export async function machineOf(context: IpamContext): Promise<Machine | undefined> {
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
      "the pod is a remainder: delete it",
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

export interface LeftMachine {
  readonly name: string;
  /** Nobody will start it again. */
  readonly isEnding: boolean;
}

/**
 * The machine of a pod that ends; undefined when it ran none, or is gone itself and nothing tells. A pod must be able to end
 * whatever became of its machine: what is missing is no failure here.
 */
export async function machineLeft(context: IpamContext): Promise<LeftMachine | undefined> {
  const { namespace } = context.identity;
  if (!hasKubernetes(context)) return undefined;
  const api = await context.kubernetes();
  const pod = await ifThere(api.pod(namespace, context.identity.pod));
  const owner = pod === undefined ? undefined : instanceOwner(pod);
  if (owner === undefined) return undefined;
  const { name } = owner;
  const instance = await ifThere(api.machineInstance(namespace, name));
  const machineName = instance === undefined ? name : machineOwner(instance)?.name;
  const lasting = machineName === undefined ? instance : await ifThere(api.machine(namespace, machineName));
  return { name, isEnding: lasting === undefined || lasting.metadata.deletionTimestamp !== undefined };
}

/** Elsewhere a pod of that name is a pod like any other. */
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

async function ifThere<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof MissingObject) return undefined;
    throw error;
  }
}
