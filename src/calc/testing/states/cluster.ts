// States with resources that need no calculation, and with computed properties of workloads.
import { LOCAL, node, profile, REMOTE, REMOTE2, resource, wep } from "../build.ts";
import type { NamedState } from "../states.ts";

export const clusterStates: readonly NamedState[] = [
  {
    name: "resources that are sent without calculation",
    state: [
      ...profile("kns.ns1", { labels: { "pcns.env": "prod" } }),
      ...profile("ksa.ns1.robot", { labels: { "pcsa.role": "cleaner" } }),
      ...profile("other"),
      { key: { type: "wireguard", host: REMOTE }, value: { publicKey: "key", publicKeyV6: "key6" } },
      { key: { type: "wireguard", host: REMOTE2 }, value: { publicKey: "key" } },
      resource("BGPConfiguration", "default", { serviceClusterIPs: [{ cidr: "10.96.0.0/12" }] }),
      resource("BGPConfiguration", "node.x", { serviceClusterIPs: [{ cidr: "1.0.0.0/12" }] }),
      resource("KubernetesService", "svc", { type: "ClusterIP", clusterIP: "10.96.0.1" }, { namespace: "ns1" }),
    ],
    want: {
      others: [
        "namespace ns1",
        "service ns1/svc",
        "serviceaccount ns1/robot",
        `wireguard 4 ${REMOTE}`,
        `wireguard 4 ${REMOTE2}`,
        `wireguard 6 ${REMOTE}`,
      ],
    },
  },
  {
    name: "a workload that migrates, one with a BGP session, one in the ambient mesh",
    state: [
      wep("vm", { labels: { "vmi.kubevirt.io/id": "vm1" } }),
      wep("router", { labels: { bgp: "yes" } }),
      wep("meshed", { labels: {}, profiles: ["kns.mesh"] }),
      wep("left", { labels: { "istio.io/dataplane-mode": "none" }, profiles: ["kns.mesh"] }),
      ...profile("kns.mesh", { labels: { "pcns.istio.io/dataplane-mode": "ambient" } }),
      ...node(LOCAL, { ip: "192.168.0.1/24", labels: { rack: "1" } }),
      resource("BGPPeer", "b", { nodeSelector: "rack == '1'", localWorkloadSelector: "bgp == 'yes'" }),
      resource("BGPPeer", "a", { node: LOCAL, localWorkloadSelector: "has(bgp)" }),
      resource("BGPPeer", "0", { node: REMOTE, localWorkloadSelector: "has(bgp)" }),
      resource(
        "LiveMigration",
        "m",
        { source: { workload: { orchestratorID: "k8s", workloadID: "default/vm", hostname: "x" } } },
        { namespace: "default", uid: "uid-1" },
      ),
    ],
    want: {
      profiles: ["kns.mesh"],
      endpoints: { vm: "", router: "", meshed: "", left: "" },
      routes: {
        "192.168.0.1/32": `none localHost ${LOCAL}=192.168.0.1`,
        "10.0.0.1/32": `none localWorkload ${LOCAL}=192.168.0.1 localWorkload`,
      },
      others: [`host ${LOCAL}`, "namespace mesh"],
    },
  },
];
