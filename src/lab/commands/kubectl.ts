// Implements `calico lab kubectl`: runs kubectl as administrator of a lab with Kubernetes.
import { baseEnvironment } from "../host.ts";
import { KubernetesCluster } from "../kubernetes/cluster.ts";
import { Lab } from "../lab.ts";
import { InvalidRequest } from "../options.ts";
import type { kubectlGrammar, LabCall } from "../table.ts";
import { runAttached } from "./run-attached.ts";
import { requestedLab } from "./requested-lab.ts";

export function run({ flags, rest }: LabCall<typeof kubectlGrammar>): number {
  const lab = Lab.open(requestedLab(flags));
  if (lab.options.datastore !== "kubernetes")
    throw new InvalidRequest(
      `lab ${lab.folder.name} has no Kubernetes API server; create one with calico lab up --kubernetes or --datastore kubernetes`,
    );
  return runAttached(new KubernetesCluster(lab).kubectlCommand(rest), baseEnvironment());
}
