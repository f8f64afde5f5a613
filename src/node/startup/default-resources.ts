// Creates the cluster's identity, tiers and default configurations, if another node has not created them. With the Kubernetes
// datastore, nodes only create these resources: a node that may update cluster-wide settings could disable policy on all
// nodes. There, calico-kube-controllers updates ClusterInformation.
import { AlreadyExists, type Client, Conflict, NotFound, versionToRecord } from "../../datastore/index.ts";
import { API_VERSION, type KindName, type Resource, specFields, withSpecFields } from "../../model/index.ts";

export interface ClusterInputs {
  readonly clusterType: string;
  readonly version: string;
}

export async function ensureDefaults(client: Client, node: string, inputs: ClusterInputs): Promise<void> {
  const createOnly = client.datastore.name === "kubernetes";
  await client.ensureInitialized({
    clusterType: inputs.clusterType,
    ...(await versionToRecord(client, inputs.version)),
    createOnly,
  });
  await fill(client, "FelixConfiguration", "default", { reportingInterval: "0s", logSeverityScreen: "Info" });
  if (client.datastore.name !== "kubernetes")
    await fill(client, "FelixConfiguration", `node.${node}`, { defaultEndpointToHostAction: "Return" });
  await fill(client, "BGPConfiguration", "default", {});
  await fill(client, "IPAMConfiguration", "default", {
    autoAllocateBlocks: true,
    strictAffinity: false,
    kubeVirtVMAddressPersistence: "Enabled",
  });
}

/** Creates the resource or, if nodes may update it, adds missing fields. Existing fields are kept. */
async function fill(
  client: Client,
  kind: KindName,
  name: string,
  fields: Readonly<Record<string, unknown>>,
): Promise<void> {
  try {
    const current: Resource = await client.get({ kind, name });
    if (client.datastore.name === "kubernetes") return;
    const spec = specFields(current);
    const missing = Object.entries(fields).filter(([field]) => spec[field] === undefined);
    if (missing.length === 0) return;
    await client.update(withSpecFields(current, Object.fromEntries(missing)));
  } catch (error) {
    if (error instanceof Conflict) return; // another node was faster
    if (!(error instanceof NotFound)) throw error;
    try {
      await client.create({ apiVersion: API_VERSION, kind, metadata: { name }, spec: fields });
    } catch (again) {
      if (!(again instanceof AlreadyExists)) throw again;
    }
  }
}
