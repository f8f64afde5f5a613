// Lists all targets by group. A fuzzing process loads only the group of its target.
import type { FuzzTarget } from "../target.ts";

interface Group {
  readonly load: () => Promise<{ readonly targets: Readonly<Record<string, FuzzTarget>> }>;
  readonly names: readonly string[];
}

const GROUPS: readonly Group[] = [
  {
    load: () => import("./kernel.ts"),
    names: [
      "netlink-route",
      "netlink-link",
      "netlink-address",
      "netlink-neighbour",
      "netlink-nftables",
      "netlink-conntrack",
      "netlink-ipset",
      "netlink-wireguard",
      "netlink-acknowledgement",
      "arp-packet",
      "mountinfo",
    ],
  },
  {
    load: () => import("./programs.ts"),
    names: ["iptables-save", "bird-reply", "typha-client-stream", "typha-server-stream", "dataplane-driver"],
  },
  { load: () => import("./datastore.ts"), names: ["etcd-message"] },
  {
    load: () => import("./cni.ts"),
    names: ["cni-request", "cni-result", "cni-service-reply", "pod-annotations"],
  },
  {
    load: () => import("./model.ts"),
    names: ["selector", "address", "lossless-json", "stored-value", "kubernetes-object"],
  },
  {
    load: () => import("./configuration.ts"),
    names: ["kubeconfig", "api-config", "yaml-resources", "convert-v1", "go-template", "felix-settings"],
  },
  { load: () => import("./http.ts"), names: ["http-request", "kubernetes-answer", "grpc-stream"] },
];

export const TARGETS: readonly string[] = GROUPS.flatMap(({ names }) => names);

export async function loadTarget(name: string): Promise<FuzzTarget> {
  // Targets with known faults, for the driver's test.
  const group = GROUPS.find(({ names }) => names.includes(name))?.load ?? (() => import("../testing/toy-targets.ts"));
  const target = (await group()).targets[name];
  if (target === undefined) throw new Error(`there is no fuzz target ${name}`);
  return target;
}
