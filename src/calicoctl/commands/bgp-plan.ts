// Implements `calicoctl bgp plan NODE`, which computes the BGP plan of any node as the node's BGP service does.
import {
  BgpCollector,
  type BgpPlan,
  birdConfiguration,
  type LocalInputs,
  NoSuchNode,
  type PlannedPeer,
  plan,
  type RouteStep,
} from "../../bgp/index.ts";
import type { Datastore } from "../../datastore/index.ts";
import type { KindName, Resource } from "../../model/index.ts";
import { openStore } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { bgpPlanGrammar } from "../table/bgp.ts";
import { Failure } from "../command-line/failure.ts";
import { readCluster } from "../input/cluster.ts";
import { toJson } from "../output/json.ts";
import { formatTable } from "../../lib/terminal/table.ts";

const KINDS = ["Node", "BGPConfiguration", "BGPPeer", "BGPFilter", "IPPool"] as const satisfies readonly KindName[];

export async function run(call: Call<typeof bgpPlanGrammar>): Promise<number> {
  const { NODE: node } = call.args;
  const print = PRINTERS[call.flags.output];
  const directory = call.flags.from;
  const collector = new BgpCollector();
  let isKubernetes = true;
  if (directory === undefined) {
    await using store = await openStore(call);
    isKubernetes = store.datastore.name === "kubernetes";
    await collectDatastore(store.datastore, node, collector);
  } else await collectFiles(call, directory, collector);
  try {
    const notRead = new Set<string>();
    const made = plan(collector.stateFor(node), node, inputsOf(call, isKubernetes, notRead));
    call.io.out(print({ ...made, secretsNotRead: [...notRead] }));
    return 0;
  } catch (error) {
    if (!(error instanceof NoSuchNode)) throw error;
    throw new Failure(`resource does not exist: Node(${node})`, { cause: error });
  }
}

async function collectDatastore(datastore: Datastore, node: string, collector: BgpCollector): Promise<void> {
  const lists = await Promise.all(KINDS.map((kind) => datastore.list({ type: "resource", kind })));
  for (const [i, { items }] of lists.entries())
    for (const { key, value } of items) collector.setResource(key.name, value as Resource, KINDS[i] ?? "Node");
  const affinities = await datastore.list({ type: "blockAffinity", affinityType: "host", host: node });
  for (const { key, value } of affinities.items) collector.setBlock(key.host, key.cidr, value);
}

async function collectFiles(
  call: Call<typeof bgpPlanGrammar>,
  directory: string,
  collector: BgpCollector,
): Promise<void> {
  const { resources, blocks } = await readCluster(directory, call.io);
  for (const resource of resources) collector.setResource(resource.metadata.name, resource, resource.kind);
  for (const { host, cidr, affinity } of blocks) collector.setBlock(host, cidr, affinity);
}

/**
 * @param isKubernetes the plan assumes that the node can read Secrets
 * @param notRead receives the secrets (`name/key`) that are not given by flags
 */
function inputsOf(call: Call<typeof bgpPlanGrammar>, isKubernetes: boolean, notRead: Set<string>): LocalInputs {
  const { env } = call.io;
  const routerId = call.flags["router-id"] ?? env["CALICO_ROUTER_ID"];
  const clusterIps = env["CALICO_ADVERTISE_CLUSTER_IPS"];
  return {
    routerId,
    ...(clusterIps === undefined || clusterIps === ""
      ? {}
      : { clusterIps: clusterIps.split(",").map((text) => text.trim()) }),
    hasSecret: ({ name, key }) => {
      const secret = `${name}/${key}`;
      if (call.flags.secret.includes(secret)) return true;
      notRead.add(secret);
      // With another datastore, calico-node often has no access to the Kubernetes API, and then uses no password.
      return isKubernetes || "unknown";
    },
  };
}

/** The plan, and the secrets (`name/key`) that it needs and that the command did not read. */
interface PrintedPlan extends BgpPlan {
  readonly secretsNotRead: readonly string[];
}

const PRINTERS = {
  json: toJson,
  ps: tables,
  // A password is shown as the name of its secret, because only the node may read it.
  bird: (made: BgpPlan) =>
    ([4, 6] as const)
      .map((family) => birdConfiguration(made, family, { password: (secret) => `<${secret.slice(0, 70)}>` }))
      .join("\n"),
} as const;

function tables(made: PrintedPlan): string {
  const facts = [
    ["Node", made.node],
    ["Router ID", made.routerId],
    ["AS", String(made.localAs ?? "none: the node has no address")],
    [
      "Listens on",
      [made.listenAddress[4], made.listenAddress[6]].filter((text) => text !== null).join(", ") || "all addresses",
    ],
    ["Port", String(made.listenPort ?? 179)],
  ];
  const sections = [
    facts.map(([name, value]) => `${`${name}:`.padEnd(12)}${value}\n`).join(""),
    section(
      "Sessions",
      made.peers.length === 0 ? "none\n" : formatTable(["PEER", "AS", "SESSION", "REASON"], made.peers.map(peerRow)),
    ),
    section("Announces", announced(made)),
    section(
      "Aggregated blocks",
      made.aggregation.length === 0 ? "none\n" : made.aggregation.map((entry) => `${entry.block}\n`).join(""),
    ),
    section(
      "Accepted into the kernel",
      ([4, 6] as const)
        .map((family) => `IPv${family}: ${made.kernelExport[family].flatMap(describeStep).join("; ")}\n`)
        .join(""),
    ),
  ];
  if (made.bgpFilters.length > 0)
    sections.push(
      section(
        "Filters",
        made.bgpFilters
          .map(
            (filter) => `${filter.function}: ${filter.rules.length} ${filter.rules.length === 1 ? "rule" : "rules"}\n`,
          )
          .join(""),
      ),
    );
  if (made.secretsNotRead.length > 0)
    sections.push(
      section(
        "Secrets that this command did not read",
        made.secretsNotRead
          .map((secret) => `${secret}: the session has this password if calico-node can read the Secret\n`)
          .join(""),
      ),
    );
  if (made.problems.length > 0)
    sections.push(section("Problems", made.problems.map(({ object, problem }) => `${object}: ${problem}\n`).join("")));
  return sections.join("\n");
}

const section = (title: string, text: string): string => `${title}\n${text.replaceAll(/^(?=.)/gm, "  ")}`;

function peerRow(peer: PlannedPeer): readonly string[] {
  const session = [
    peer.passive ? "passive" : "active",
    ...(peer.routeReflectorClient ? [`reflector client, cluster ID ${peer.rrClusterId}`] : []),
    ...(peer.password === null ? [] : [`password ${peer.password}`]),
    ...(peer.ttlSecurity === null ? [] : [`within ${peer.ttlSecurity} hops`]),
    ...(peer.nextHop === "default" ? [] : [`next hop ${peer.nextHop}`]),
    ...[...peer.importFilters, ...peer.exportFilters].map((call) => call.function),
  ];
  const remote = peer.localAs === null ? String(peer.remoteAs) : `${peer.remoteAs} as ${peer.localAs}`;
  return [
    `${peer.neighbor}${peer.port === null ? "" : ` port ${peer.port}`}`,
    remote,
    session.join(", "),
    peer.because,
  ];
}

function announced(made: BgpPlan): string {
  const lines = ([4, 6] as const).flatMap((family) =>
    made.bgpExport[family].flatMap((step) =>
      "within" in step ? [`${step.action === "accept" ? "" : "not "}${step.within}`] : [],
    ),
  );
  const tagged = made.communities.map(({ within, add }) => `${within} with communities ${add.join(" ")}`);
  const unique = [...new Set([...lines, ...tagged])];
  return unique.length === 0 ? "nothing\n" : unique.map((line) => `${line}\n`).join("");
}

function describeStep(step: RouteStep): readonly string[] {
  if ("within" in step) return [`${step.action === "accept" ? "" : "not "}${step.within}`];
  if ("nextHop" in step) return [`not via ${step.nextHop}`];
  return "action" in step && !("interface" in step) ? ["everything else"] : [];
}
