// States with pools, blocks and nodes, and the expected routes.
import { block, LOCAL, node, pool, REMOTE, REMOTE2, wep } from "../build.ts";
import type { NamedState } from "../states.ts";

const vxlanPool = pool("10.0.0.0/16", { vxlanMode: "always" });
const nodes = [
  ...node(LOCAL, { ip: "192.168.0.1/24", vxlan: "10.0.0.0", mac: "66:00:00:00:00:01" }),
  ...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.0" }),
];
const HOSTS = {
  "192.168.0.1/32": `none localHost ${LOCAL}=192.168.0.1`,
  "192.168.0.2/32": `none remoteHost ${REMOTE}=192.168.0.2`,
};
const OTHERS = [`host ${LOCAL}`, `host ${REMOTE}`, "pool 10.0.0.0-16"];
const VTEPS = {
  [LOCAL]: "66:00:00:00:00:01 10.0.0.0 192.168.0.1",
  [REMOTE]: "66:3e:ca:a4:db:65 10.0.1.0 192.168.0.2",
};
export const routeStates: readonly NamedState[] = [
  {
    name: "VXLAN with a block on each node",
    state: [
      vxlanPool,
      ...nodes,
      block("10.0.0.0/29", LOCAL, { 1: LOCAL }),
      block("10.0.1.0/29", REMOTE),
      wep("ep1", { nets: ["10.0.0.1/32"] }),
    ],
    want: {
      endpoints: { ep1: "" },
      routes: {
        ...HOSTS,
        "10.0.0.0/16": "vxlan cidrInfo",
        "10.0.0.0/29": `vxlan localWorkload ${LOCAL}=192.168.0.1`,
        "10.0.0.0/32": `vxlan localTunnel ${LOCAL}=192.168.0.1 tunnel:vxlan`,
        "10.0.0.1/32": `vxlan localWorkload ${LOCAL}=192.168.0.1 localWorkload`,
        "10.0.1.0/29": `vxlan remoteWorkload ${REMOTE}=192.168.0.2`,
        "10.0.1.0/32": `vxlan remoteTunnel ${REMOTE}=192.168.0.2 tunnel:vxlan`,
      },
      vteps: VTEPS,
      others: OTHERS,
    },
  },
  {
    name: "an address borrowed from another node's block, and a borrowed tunnel address",
    state: [
      vxlanPool,
      ...node(LOCAL, { ip: "192.168.0.1/24", vxlan: "10.0.1.6" }),
      ...node(REMOTE, { ip: "192.168.0.2/24" }),
      block("10.0.1.0/29", REMOTE, { 2: LOCAL, 3: REMOTE, 6: LOCAL, 7: REMOTE2 }),
      wep("ep1", { nets: ["10.0.1.2/32"] }),
    ],
    want: {
      endpoints: { ep1: "" },
      routes: {
        ...HOSTS,
        "10.0.0.0/16": "vxlan cidrInfo",
        "10.0.1.0/29": `vxlan remoteWorkload ${REMOTE}=192.168.0.2`,
        "10.0.1.2/32": `vxlan remoteWorkload+localWorkload ${LOCAL}=192.168.0.1 localWorkload borrowed`,
        "10.0.1.6/32": `vxlan remoteWorkload+localWorkload+localTunnel ${LOCAL}=192.168.0.1 borrowed tunnel:vxlan`,
        "10.0.1.7/32": `vxlan remoteWorkload ${REMOTE2}= borrowed`,
      },
      vteps: { [LOCAL]: "66:33:43:89:04:8b 10.0.1.6 192.168.0.1" },
      others: OTHERS,
    },
  },
  {
    name: "across subnets",
    state: [
      pool("10.0.0.0/16", { vxlanMode: "cross-subnet", masquerade: true }),
      ...nodes,
      ...node(REMOTE2, { ip: "192.168.1.3/24", ipip: "10.0.2.1", vxlan: "10.0.2.1" }),
      block("10.0.1.0/29", REMOTE),
      block("10.0.2.0/29", REMOTE2),
    ],
    want: {
      routes: {
        ...HOSTS,
        "192.168.1.3/32": `none remoteHost ${REMOTE2}=192.168.1.3`,
        "10.0.0.0/16": "vxlan cidrInfo natOutgoing",
        "10.0.0.0/32": `vxlan localTunnel ${LOCAL}=192.168.0.1 sameSubnet natOutgoing tunnel:vxlan`,
        "10.0.1.0/29": `vxlan remoteWorkload ${REMOTE}=192.168.0.2 sameSubnet natOutgoing`,
        "10.0.1.0/32": `vxlan remoteTunnel ${REMOTE}=192.168.0.2 sameSubnet natOutgoing tunnel:vxlan`,
        "10.0.2.0/29": `vxlan remoteWorkload ${REMOTE2}=192.168.1.3 natOutgoing`,
        "10.0.2.1/32": `vxlan remoteTunnel ${REMOTE2}=192.168.1.3 natOutgoing tunnel:ipip tunnel:vxlan`,
      },
      vteps: { ...VTEPS, [REMOTE2]: "66:31:58:fc:ee:65 10.0.2.1 192.168.1.3" },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, `host ${REMOTE2}`, "pool 10.0.0.0-16"],
    },
  },
  {
    name: "IPIP instead, the pool as wide as its block",
    state: [
      pool("10.0.1.0/29", { ipipMode: "always" }),
      ...node(LOCAL, { ip: "192.168.0.1/24" }),
      ...node(REMOTE, { ip: "192.168.0.2/24", ipip: "10.0.1.1" }),
      block("10.0.1.0/29", REMOTE),
    ],
    want: {
      routes: {
        ...HOSTS,
        "10.0.1.0/29": `ipip remoteWorkload ${REMOTE}=192.168.0.2`,
        "10.0.1.1/32": `ipip remoteTunnel ${REMOTE}=192.168.0.2 tunnel:ipip`,
      },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, "pool 10.0.1.0-29"],
    },
  },
  {
    name: "two nodes share an address, which lies in a pool",
    state: [
      pool("192.168.0.0/16", { masquerade: true }),
      ...node(LOCAL, { ip: "192.168.0.1/24" }),
      ...node(REMOTE, { ip: "192.168.0.1/24" }),
      ...node(REMOTE2, {
        addresses: [
          { address: "192.168.0.3/24", type: "InternalIP" },
          { address: "1.2.3.4", type: "ExternalIP" },
        ],
      }),
    ],
    want: {
      routes: {
        "192.168.0.0/16": "no-encap cidrInfo natOutgoing",
        "192.168.0.1/32": `no-encap localHost ${LOCAL}=192.168.0.1 natOutgoing`,
        "192.168.0.3/32": `no-encap remoteHost ${REMOTE2}=192.168.0.3 natOutgoing`,
        "1.2.3.4/32": `none remoteHost ${REMOTE2}=192.168.0.3`,
      },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, `host ${REMOTE2}`, "pool 192.168.0.0-16"],
    },
  },
  {
    name: "a pool for load balancers only",
    state: [
      pool("10.0.0.0/16", { allowedUses: ["LoadBalancer"] }),
      pool("11.0.0.0/16", { allowedUses: ["LoadBalancer"], masquerade: true }),
    ],
    want: {
      routes: { "10.0.0.0/16": "none cidrInfo", "11.0.0.0/16": "none cidrInfo natOutgoing" },
      others: ["pool 10.0.0.0-16", "pool 11.0.0.0-16"],
    },
  },
  {
    name: "both families",
    state: [
      pool("10.0.0.0/16", { vxlanMode: "always" }),
      pool("fd00:10::/48", { vxlanMode: "always" }),
      ...node(LOCAL, { ip: "192.168.0.1/24", ip6: "fd00::1/64", vxlan: "10.0.0.0", vxlan6: "fd00:10::" }),
      ...node(REMOTE, { ip: "192.168.0.2/24", ip6: "fd00::2/64", vxlan: "10.0.1.0", vxlan6: "fd00:10::1:0" }),
      block("fd00:10::1:0/125", REMOTE),
    ],
    want: {
      routes: {
        ...HOSTS,
        "fd00::1/128": `none localHost ${LOCAL}=fd00::1`,
        "fd00::2/128": `none remoteHost ${REMOTE}=fd00::2`,
        "10.0.0.0/16": "vxlan cidrInfo",
        "10.0.0.0/32": `vxlan localTunnel ${LOCAL}=192.168.0.1 tunnel:vxlan`,
        "10.0.1.0/32": `vxlan remoteTunnel ${REMOTE}=192.168.0.2 tunnel:vxlan`,
        "fd00:10::/48": "vxlan cidrInfo",
        "fd00:10::/128": `vxlan localTunnel ${LOCAL}=fd00::1 tunnel:vxlan`,
        "fd00:10::1:0/125": `vxlan remoteWorkload ${REMOTE}=fd00::2`,
        "fd00:10::1:0/128": `vxlan remoteTunnel ${REMOTE}=fd00::2 tunnel:vxlan`,
      },
      vteps: {
        [LOCAL]: "66:33:43:89:04:8b 10.0.0.0 192.168.0.1 66:97:08:c6:c6:21 fd00:10:: fd00::1",
        [REMOTE]: "66:3e:ca:a4:db:65 10.0.1.0 192.168.0.2 66:a0:68:c9:4c:79 fd00:10::1:0 fd00::2",
      },
      others: [`host ${LOCAL}`, `host ${REMOTE}`, "pool 10.0.0.0-16", "pool fd00:10::-48"],
    },
  },
];
