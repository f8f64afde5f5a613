// Implements `calico lab exec`: runs a command on a host or in a pod.
import { dirname } from "node:path";
import { baseEnvironment } from "../host.ts";
import { Lab } from "../lab.ts";
import { podNamespace } from "../pods.ts";
import { datastoreEnvironment, rolePath } from "../programs.ts";
import type { execGrammar, LabCall } from "../table.ts";
import { runAttached } from "./run-attached.ts";
import { requestedLab } from "./requested-lab.ts";

export function run({ flags, args, rest }: LabCall<typeof execGrammar>): number {
  const lab = Lab.open(requestedLab(flags));
  const where = args["NODE|POD"];
  const pod = lab.hostNames.includes(where) ? undefined : lab.pod(where);
  const host = lab.host(pod?.node ?? where);
  const namespace = pod === undefined ? undefined : (lab.namespaceNames([pod]).get(pod) ?? podNamespace(pod));
  const inside = namespace === undefined ? rest : ["ip", "netns", "exec", namespace, ...rest];
  const base = baseEnvironment();
  const environment = {
    ...base,
    PATH: `${dirname(rolePath("calicoctl"))}:${base["PATH"]}`,
    ...datastoreEnvironment(lab.options, lab.plan),
    NODENAME: host.name,
  };
  return runAttached(host.enter(inside), environment);
}
