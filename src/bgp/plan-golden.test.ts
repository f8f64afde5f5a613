// Compares plans with plans recorded from Calico, except where `DIFFERENT` lists a reason.
import { describe, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { loadAll } from "js-yaml";
import { decodeValue, parseStoredPath, type Resource } from "../model/index.ts";
import { BgpCollector } from "./collect.ts";
import { type LocalInputs, plan } from "./plan.ts";
import { serviceAddresses } from "./service-addresses.ts";
import type { BgpState } from "./state.ts";

interface Recorded {
  readonly name: string;
  readonly localNode: string;
  readonly env: Record<string, string>;
  readonly resources?: string;
  readonly keys?: Record<string, string>;
  readonly removedKeys?: readonly string[];
  readonly endpointStatusFiles?: Record<string, { ipv4Nets: string[]; ipv6Nets: string[]; bgpPeerName: string }>;
  readonly kubernetes?: string;
  readonly peers?: readonly Record<string, unknown>[];
  readonly variants?: unknown;
  readonly [field: string]: unknown;
}
const FIELDS = [
  "families",
  "routerId",
  "localAs",
  "listenPort",
  "listenAddress",
  "interfaces",
  "debug",
  "staticBlackholes",
  "staticRoutes",
  "staticProtocol",
  "aggregation",
  "communities",
  "kernelExport",
  "bgpExport",
  "bgpFilters",
] as const;

/** Cases in which Calico is wrong, or BIRD 2 does not support its behaviour. */
const DIFFERENT: Readonly<Record<string, string>> = {
  "blocks-on-node-without-address": "the router ID is never empty",
  "mesh-local-without-address": "the router ID is never empty",
  "mesh-ipv6-only-local": "the router ID is never empty",
  "ipv6-only-node-default": "the router ID is never empty",
  "pool-on-ipv6-only-node": "the router ID is never empty",
  "explicit-not-an-address": "an invalid router ID is not used",
  "mesh-and-explicit-peer-to-mesh-node@node1": "one session per node",
  "mesh-and-explicit-peer-to-mesh-node@node2": "one session per node",
  "selector-all-to-all-with-mesh@node1": "one session per node",
  "selector-all-to-all-with-mesh@node2": "one session per node",
  "becomes-reflector-before": "one session per node",
  "mesh-own-as@node1": "a node without an AS number has the cluster's, not that of its peer",
  "mesh-own-as@node3": "a node without an AS number has the cluster's, not that of its peer",
  "global-without-as": "no session with AS 0",
  "prefix-lengths": "a rule with an empty range of lengths is left out",
  "listen-port-node-and-global-port-match@node2": "a node listens on the port of its own configuration",
  "reflector-by-address-global-two@node1": "reflectors of the same cluster are not clients of each other",
  "reflector-by-address-global-two@node2": "reflectors of the same cluster are not clients of each other",
  "ipip-always-enabled": "Felix programs routes over IPIP",
  "ipip-cross-subnet-enabled": "Felix programs routes over IPIP",
  "overlapping-pools": "Felix programs routes over IPIP",
  "program-cluster-routes-Enabled": "Felix programs routes over IPIP",
  "with-pools": "Felix programs routes over IPIP",
  "single-address-ranges-policy-cluster": "a single service address is not a blackhole in the kernel",
};

const folder = join(import.meta.dir, "../../../shared/golden/bgp");
if (!existsSync(folder)) console.log("bgp plans: skipped, the recordings are not next to the checkout");
else
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".json"))) {
    const { group, cases } = JSON.parse(readFileSync(join(folder, file), "utf8")) as {
      group: string;
      cases: Recorded[];
    };
    describe(`recorded ${group}`, () => {
      for (const recorded of cases) {
        if (recorded.peers === undefined || recorded.variants !== undefined) continue;
        test(recorded.name, () => {
          const state = stateOf(recorded);
          const made = plan(state, recorded.localNode, { ...inputsOf(recorded), ...kubernetesInputs(recorded, state) });
          // Recorded plans contain passwords, plans of calico-ts the names of secrets.
          const plain = (peer: object) => ({
            ...peer,
            because: undefined,
            password: "password" in peer && peer.password !== null,
          });
          const got: Record<string, unknown> = { peers: made.peers.map(plain) };
          const want: Record<string, unknown> = { peers: recorded.peers?.map(plain) };
          for (const field of FIELDS) {
            got[field] = JSON.parse(JSON.stringify(made[field]));
            want[field] = recorded[field];
          }
          if (DIFFERENT[recorded.name] === undefined) expect(got).toEqual(want);
          else expect(got).not.toEqual(want);
        });
      }
    });
  }

function stateOf(recorded: Recorded) {
  const collector = new BgpCollector();
  for (const document of loadAll(recorded.resources ?? "") as Resource[])
    if (
      document !== null &&
      !(recorded.removedKeys ?? []).some((path) =>
        path.endsWith(`/${document.kind.toLowerCase()}s/${document.metadata.name}`),
      )
    )
      collector.setResource(document.metadata.name, document, document.kind);
  for (const [path, value] of Object.entries(recorded.keys ?? {})) {
    const key = parseStoredPath(path);
    if (key?.type === "resource") collector.setResource(key.name, decodeValue(key, value), key.kind);
    if (key?.type !== "blockAffinity") continue;
    try {
      collector.setBlock(key.host, key.cidr, decodeValue(key, value));
    } catch {
      // unreadable: the driver reports and skips it
    }
  }
  return collector.stateFor(recorded.localNode);
}

function inputsOf({ env, endpointStatusFiles = {} }: Recorded) {
  const clusterIps = env["CALICO_ADVERTISE_CLUSTER_IPS"]?.split(",");
  const routerId = env["CALICO_ROUTER_ID"];
  return {
    routerId,
    clusterIps,
    workloads: Object.values(endpointStatusFiles).map(({ bgpPeerName, ipv4Nets, ipv6Nets }) => ({
      peerName: bgpPeerName,
      addresses: [ipv4Nets[0], ipv6Nets[0]].flatMap((net) => (net === undefined ? [] : [net.split("/")[0] as never])),
    })),
  };
}

interface KubernetesDocument {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly data?: Record<string, string>;
  readonly stringData?: Record<string, string>;
}

function kubernetesInputs(recorded: Recorded, state: BgpState): LocalInputs {
  if (recorded.kubernetes === undefined) return {};
  const documents = (loadAll(recorded.kubernetes) as KubernetesDocument[]).filter((each) => each !== null);
  const ingress = (recorded["serviceIngress"] ?? {}) as Record<string, string[]>;
  const secrets = new Set(
    documents
      .filter(
        ({ kind, metadata }) =>
          kind === "Secret" && metadata.namespace === (recorded.env["NAMESPACE"] ?? "kube-system"),
      )
      .flatMap(({ metadata, data, stringData }) =>
        Object.keys({ ...data, ...stringData }).map((key) => `${metadata.name}/${key}`),
      ),
  );
  return {
    hasSecret: ({ name, key }) => secrets.has(`${name}/${key}`),
    serviceAddresses: serviceAddresses({
      services: documents
        .filter(({ kind }) => kind === "Service")
        .map((service) => ({
          ...service,
          status: { loadBalancer: { ingress: (ingress[service.metadata.name] ?? []).map((ip) => ({ ip })) } },
        })),
      slices: documents.filter(({ kind }) => kind === "EndpointSlice"),
      nodeName: recorded.localNode,
      configuration: state.configurations.get("default"),
      isExcluded:
        state.nodes.get(recorded.localNode)?.labels["node.kubernetes.io/exclude-from-external-load-balancers"] ===
        "true",
    }),
  };
}
