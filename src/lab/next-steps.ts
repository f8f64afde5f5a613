// Lists the commands that `calico lab up` suggests when it is done.
import { AGNHOST_IMAGE } from "./kubernetes/image-names.ts";
import type { Lab } from "./lab.ts";
import { DEFAULT_OPTIONS } from "./options.ts";

/** Returns commands with explanations, ready to be typed. */
export function nextSteps(lab: Lab): string {
  const [first] = lab.record.pods;
  const calico = `${programName()} lab`;
  const flag = nameFlag(lab.folder.name);
  const kubectl = `${calico} kubectl${flag === "" ? "" : `${flag} --`}`;
  const steps = lab.options.kubelets
    ? [
        [`${calico} demo${flag}`, "connections before and after a policy"],
        [`${kubectl} get nodes -o wide`, "kubectl as administrator"],
        [`${kubectl} create deployment web --replicas 6 --image ${AGNHOST_IMAGE} -- /agnhost netexec`],
        [`${calico} matrix --port 8080${flag}`, "which pods can connect, when the deployment is ready"],
        [`${calico} exec node1${flag} -- calicoctl get nodes -o wide`, "a command on a node"],
      ]
    : [
        [`${calico} demo${flag}`, "connections before and after a policy"],
        [`${calico} matrix${flag}`, "which pods can connect to which"],
        lab.options.topology === "dual-nic"
          ? [`${calico} exec node1${flag} -- calicoctl doctor`, "the fault of this topology, and its fix"]
          : [`${calico} exec node1${flag} -- calicoctl node status`, "a command on a host"],
        [`${calico} exec ${first?.name ?? "node1"}${flag} -- ip route`, "a command in a pod"],
        ...(lab.options.datastore === "kubernetes"
          ? [[`${kubectl} get pods -A -o wide`, "kubectl as administrator"]]
          : []),
        [`${calico} break link ${lab.plan.nodes[1]?.name ?? "node1"}${flag}`, "disconnect a host; heal reconnects it"],
      ];
  const last = [
    [`${calico} help`, "everything else"],
    [`${calico} down${flag}`, "remove the lab"],
  ];
  const widest = Math.max(...[...steps, ...last].map(([line = "", about]) => (about === undefined ? 0 : line.length)));
  return [
    "try:",
    ...[...steps, ...last].map(([line = "", about = ""]) => `  ${line.padEnd(widest)}  ${about}`.trimEnd()),
  ].join("\n");
}

/** Omits the name of the default lab. */
export const labTitle = (name: string): string => (name === DEFAULT_OPTIONS.name ? "lab" : `lab ${name}`);

export const nameFlag = (name: string): string => (name === DEFAULT_OPTIONS.name ? "" : ` --name ${name}`);

/** The command with which this program was called, such as dist/calico or calico. */
const programName = (): string => (/(^|\/)calico$/.test(process.argv0) ? process.argv0 : "calico");
