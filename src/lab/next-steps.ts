// What a lab's `up` ends with: lines to type next, each with what it shows.
import { AGNHOST_IMAGE } from "./kubernetes/image-names.ts";
import type { Lab } from "./lab.ts";
import { DEFAULT_OPTIONS } from "./options.ts";

/** What to try with a lab that stands, as it can be typed. */
export function nextSteps(lab: Lab): string {
  const [first] = lab.record.pods;
  const calico = `${calledAs()} lab`;
  const flag = nameFlag(lab.folder.name);
  const kubectl = `${calico} kubectl${flag === "" ? "" : `${flag} --`}`;
  const steps = lab.options.kubelets
    ? [
        [`${calico} demo${flag}`, "a policy, before and after, and why"],
        [`${kubectl} get nodes -o wide`, "kubectl, as the cluster's administrator"],
        [`${kubectl} create deployment web --replicas 6 --image ${AGNHOST_IMAGE} -- /agnhost netexec`],
        [`${calico} matrix --port 8080${flag}`, "who reaches whom, once the web is there"],
        [`${calico} exec node1${flag} -- calicoctl get nodes -o wide`, "a command on a node"],
      ]
    : [
        [`${calico} demo${flag}`, "a policy, before and after, and why"],
        [`${calico} matrix${flag}`, "who reaches whom"],
        lab.options.topology === "dual-nic"
          ? [`${calico} exec node1${flag} -- calicoctl doctor`, "what is wrong with this topology, and the cure"]
          : [`${calico} exec node1${flag} -- calicoctl node status`, "a command on a host"],
        [`${calico} exec ${first?.name ?? "node1"}${flag} -- ip route`, "a command in a pod"],
        ...(lab.options.datastore === "kubernetes"
          ? [[`${kubectl} get pods -A -o wide`, "kubectl, as the cluster's administrator"]]
          : []),
        [`${calico} break link ${lab.plan.nodes[1]?.name ?? "node1"}${flag}`, "pull a plug; heal puts it back"],
      ];
  const last = [
    [`${calico} help`, "everything else"],
    [`${calico} down${flag}`, "all of it gone"],
  ];
  const widest = Math.max(...[...steps, ...last].map(([line = "", what]) => (what === undefined ? 0 : line.length)));
  return [
    "try:",
    ...[...steps, ...last].map(([line = "", what = ""]) => `  ${line.padEnd(widest)}  ${what}`.trimEnd()),
  ].join("\n");
}

/** The default lab needs no name. */
export const labTitle = (name: string): string => (name === DEFAULT_OPTIONS.name ? "lab" : `lab ${name}`);

export const nameFlag = (name: string): string => (name === DEFAULT_OPTIONS.name ? "" : ` --name ${name}`);

/** The word that called this program, so that what is printed can be typed: dist/calico, or calico by the PATH. */
const calledAs = (): string => (/(^|\/)calico$/.test(process.argv0) ? process.argv0 : "calico");
