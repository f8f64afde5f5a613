// Defines attacks by objects that the tenant creates or tries to create.
import { createHash } from "node:crypto";
import { spawn } from "node:child_process";
import type { LabPod, NewPod } from "../../src/lab/folder.ts";
import { podNamespace } from "../../src/lab/pods.ts";
import { PacketProber, type ProbeRequest } from "../../src/kernel/index.ts";
import type { IpAddress } from "../../src/lib/ip/ip.ts";
import { podInterfaceName } from "../../src/model/kubernetes/pod.ts";
import { collidingTexts } from "../functional/dataplane/wyhash-collision.ts";
import {
  type Attack,
  type AttackContext,
  INEFFECTIVE,
  judged,
  judgedReply,
  pathOf,
  PROGRAMMED_MS,
  type Result,
  toHost,
  udpTo,
} from "./context.ts";
import { allocations } from "./neighbour-state.ts";
import { addressOf, CLAIM_PORTS, CLAIMS, NEIGHBOUR, TENANT, TRUSTED_SERVICE_PORT } from "./scene.ts";

const CALICO = "/apis/crd.projectcalico.org/v1";
const KUBERNETES = "/apis/networking.k8s.io/v1";
const EVERYTHING = ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"];
const own = (group: string, resource: string) => `${group}/namespaces/${TENANT}/${resource}`;
const prefixed = (fields: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(fields).map(([key, value]) => [`cni.projectcalico.org/${key}`, value]));
const annotationsFor = (address: string) => ({
  podIP: `${address}/32`,
  podIPs: `${address}/32`,
  ipAddrs: JSON.stringify([address]),
});

/** Sends packets from an attacker to the ports that the database opens to others. Returns those that arrived. */
async function reachesDatabase(context: AttackContext, from: LabPod = context.attacker): Promise<string[]> {
  return context.arrivals(from, (socket, numbered) => {
    for (const version of context.versions) {
      const [source, destination] = [addressOf(from, version), addressOf(context.database, version)];
      if (source === undefined || destination === undefined) continue;
      for (const port of CLAIM_PORTS) socket.send(toHost(udpTo(source, destination, port, numbered(`UDP ${port}`))));
    }
  });
}

/** Starts a pod of the tenant, and checks whether it got the claimed address or changed something of the neighbour. */
async function startThief(
  context: AttackContext,
  pod: NewPod,
  annotations: Readonly<Record<string, string>>,
  claimed: string,
): Promise<Result> {
  const started = await context.startPod(pod, annotations);
  try {
    const taken =
      "addresses" in started && started.addresses.includes(claimed) ? [`it has the address ${claimed}`] : [];
    const found = [...taken, ...(await context.disturbed())];
    return found.length === 0 && !("addresses" in started) ? started : judged(found);
  } finally {
    await context.stopPod(pod, started);
  }
}
const newPod = (context: AttackContext, prefix: string, more: Partial<NewPod> = {}): NewPod => ({
  ...{ namespace: TENANT, name: context.unique(prefix), node: context.node, labels: {} },
  ...more,
});
/** Returns an address of blocks that only these attacks use. */
const freeAddress = (context: AttackContext): string => `10.65.${240 + context.worker}.${1 + context.random(60)}`;

export const API_ATTACKS: readonly Attack[] = [
  {
    name: "a pod whose annotations name another pod's address",
    run: async (context) => {
      const address = String(addressOf(context.victim, 4));
      return startThief(context, newPod(context, "thief"), annotationsFor(address), address);
    },
  },
  {
    name: "a virt-launcher pod that names another pod's container",
    run: async (context) => {
      const { victim } = context;
      const address = String(addressOf(victim, 4));
      const annotations = { containerID: containerId(victim), ipAddrs: JSON.stringify([address]) };
      return startThief(context, newPod(context, "virt-launcher"), annotations, address);
    },
  },
  {
    name: "a running pod's annotations changed to foreign addresses",
    run: async (context) => {
      const pod = context.pod(`${TENANT}/mallory1`);
      const prefixes = () => context.lab.host(pod.node).run(["ip", "route", "show", "0.0.0.0/1"]).stdout.trim();
      const claim = context.pick([`${addressOf(context.victim, 4)}/32`, "0.0.0.0/1,128.0.0.0/1"]);
      const { status } = await context.tenant.patch(pathOf(pod), {
        metadata: { annotations: prefixed({ podIP: claim, podIPs: claim }) },
      });
      if (status >= 400) throw new Error(`annotations of ${pod.name}: status ${status}`);
      await Bun.sleep(PROGRAMMED_MS);
      return judged([...(prefixes() === "" ? [] : ["a route to 0.0.0.0/1"]), ...(await context.disturbed())]);
    },
  },
  {
    name: "a pod's status written by its owner",
    run: async (context) =>
      judgedReply(
        "pods/status",
        await context.tenant.patch(`${pathOf(context.attacker)}/status`, {
          status: { podIPs: [{ ip: String(addressOf(context.victim, 4)) }] },
        }),
      ),
  },
  {
    name: "a NetworkSet with labels of another namespace",
    run: async (context) => {
      const { labels } = CLAIMS[context.pick(Object.keys(CLAIMS).map(Number))] ?? { labels: {} };
      const name = context.unique("claims");
      const object = { apiVersion: "crd.projectcalico.org/v1", kind: "NetworkSet", metadata: { name, labels } };
      return context.withObject(own(CALICO, "networksets"), { ...object, spec: { nets: EVERYTHING } }, async () => {
        await Bun.sleep(PROGRAMMED_MS);
        return judged(await reachesDatabase(context));
      });
    },
  },
  {
    name: "a NetworkSet with such labels in its metadata annotation",
    run: async (context) => {
      const { labels } = CLAIMS[context.pick(Object.keys(CLAIMS).map(Number))] ?? { labels: {} };
      const name = context.unique("claims");
      const annotations = { "projectcalico.org/metadata": JSON.stringify({ name, namespace: NEIGHBOUR, labels }) };
      const object = { apiVersion: "crd.projectcalico.org/v1", kind: "NetworkSet", metadata: { name, annotations } };
      return context.withObject(own(CALICO, "networksets"), { ...object, spec: { nets: EVERYTHING } }, async () => {
        await Bun.sleep(PROGRAMMED_MS);
        return judged(await reachesDatabase(context));
      });
    },
  },
  {
    name: "a pod with labels of another namespace and account",
    run: async (context) => {
      const labels: Record<string, string> = Object.assign({}, ...Object.values(CLAIMS).map((claim) => claim.labels));
      const pod = newPod(context, "claims", { labels: { ...labels, role: "client", app: "scraper" } });
      const started = await context.startPod(pod);
      try {
        if (!("addresses" in started)) return started;
        await Bun.sleep(PROGRAMMED_MS);
        return judged(await reachesDatabase(context, started));
      } finally {
        await context.stopPod(pod, started);
      }
    },
  },
  {
    name: "a policy that selects pods of another namespace",
    run: async (context) => {
      const name = `default.${context.unique("reach")}`;
      const action = context.pick(["Allow", "Deny"]);
      const spec = {
        ...{ tier: "default", order: 0, types: ["Ingress", "Egress"] },
        selector: context.pick([`projectcalico.org/namespace == '${NEIGHBOUR}'`, "app == 'db' || role == 'client'"]),
        ...{ ingress: [{ action }], egress: [{ action }] },
      };
      const object = { apiVersion: "crd.projectcalico.org/v1", kind: "NetworkPolicy", metadata: { name }, spec };
      return context.withObject(own(CALICO, "networkpolicies"), object, async () => {
        await Bun.sleep(PROGRAMMED_MS);
        return judged([...(await reachesDatabase(context)), ...(await context.divertedTraffic(context.attacker))]);
      });
    },
  },
  {
    name: "an endpoint slice for another namespace's service",
    run: async (context) => {
      const { attacker } = context;
      const slice = {
        apiVersion: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        metadata: { name: context.unique("slice"), labels: { "kubernetes.io/service-name": "trusted" } },
        addressType: "IPv4",
        endpoints: [{ addresses: [addressOf(attacker, 4)] }],
        ports: [{ port: TRUSTED_SERVICE_PORT, protocol: "UDP" }],
      };
      const slices = "/apis/discovery.k8s.io/v1";
      const foreign = await context.tenant.call("POST", `${slices}/namespaces/${NEIGHBOUR}/endpointslices`, slice);
      if (foreign.status < 400) return judgedReply("an endpoint slice of the neighbour", foreign);
      return context.withObject(own(slices, "endpointslices"), slice, async () => {
        await Bun.sleep(PROGRAMMED_MS);
        return judged(await reachesDatabase(context, attacker));
      });
    },
  },
  {
    name: "a service with a foreign address",
    run: async (context) => {
      const address = String(addressOf(context.victim, 4));
      const metadata = {
        name: context.unique("service"),
        annotations: { "projectcalico.org/loadBalancerIPs": JSON.stringify([address]) },
      };
      const spec = {
        ...{ type: "LoadBalancer", ports: [{ port: 80 }], selector: { app: "mallory" } },
        ...{ externalIPs: [address], loadBalancerIP: address },
      };
      return context.withObject(own("/api/v1", "services"), { metadata, spec }, async () => {
        await Bun.sleep(PROGRAMMED_MS);
        return judged([...(await context.disturbed()), ...(await context.divertedTraffic(context.attacker))]);
      });
    },
  },
  {
    name: "a pod whose interface name another pod has",
    run: async (context) => {
      const { victim, lab } = context;
      const pod = newPod(context, "twin", { node: victim.node });
      // Finding two names with the same hash takes 2^44 attempts. For the plugin, an interface with the thief's name and the
      // victim's alias is the same.
      const name = podInterfaceName(TENANT, pod.name);
      const host = lab.host(victim.node);
      const alias = `calico calico-lab ${containerId(victim)} ${NEIGHBOUR}/${victim.name}`;
      host.run(["ip", "link", "add", name, "type", "veth", "peer", "name", `v${name.slice(4)}`]);
      host.run(["ip", "link", "set", name, "alias", alias]);
      const link = () => host.run(["ip", "-o", "link", "show", name]).stdout.split(":")[0];
      const before = link();
      try {
        const result = await startThief(context, pod, {}, "");
        if (link() !== before) return { outcome: "SUCCEEDED", detail: `the interface of ${victim.name} was replaced` };
        return result;
      } finally {
        host.run(["ip", "link", "del", name]);
      }
    },
  },
  {
    name: "connections of a removed pod to the next one with its address",
    run: (context) => reuseConnection(context),
  },
  {
    name: "packets to a new pod before its policy",
    run: (context) => reachNewPod(context),
  },
  {
    name: "objects of the largest size",
    run: (context) => growObjects(context),
  },
  {
    name: "rules with equal hashes",
    run: (context) => collideRules(context),
  },
  {
    name: "annotations that do not parse, to free a used address",
    run: async (context) => {
      const pod = context.pod(`${TENANT}/careless`);
      const bad = context.pick<Readonly<Record<string, string>>>([
        { floatingIPs: "1.2.3.4" },
        { allowedSourcePrefixes: "10.0.0.0/8" },
        { ipAddrs: "{" },
      ]);
      await context.tenant.patch(pathOf(pod), { metadata: { annotations: prefixed(bad) } });
      const address = String(addressOf(pod, 4));
      const owner = (await allocations(context.kubelet)).get(address);
      return owner === `${TENANT}/careless` ? INEFFECTIVE : judged([`${address} of ${pod.name} belongs to ${owner}`]);
    },
  },
  ...requestsWithoutRight(),
];

/** Returns attacks by requests that RBAC does not allow the tenant. */
function requestsWithoutRight(): readonly Attack[] {
  const cluster: readonly [resource: string, kind: string, spec: object][] = [
    ["globalnetworkpolicies", "GlobalNetworkPolicy", { selector: "all()", ingress: [{ action: "Allow" }] }],
    ["globalnetworksets", "GlobalNetworkSet", { nets: EVERYTHING }],
    ["felixconfigurations", "FelixConfiguration", { workloadSourceSpoofing: "Any" }],
    ["ippools", "IPPool", { cidr: "10.65.0.0/16" }],
    ["bgppeers", "BGPPeer", { peerIP: "10.65.0.1", asNumber: 1 }],
    ["bgpconfigurations", "BGPConfiguration", {}],
    ["hostendpoints", "HostEndpoint", { node: "node1", interfaceName: "*" }],
    ["tiers", "Tier", { order: 0 }],
    ["ipamblocks", "IPAMBlock", { cidr: "10.65.0.0/26", allocations: [], attributes: [], unallocated: [] }],
    ["ipamhandles", "IPAMHandle", { handleID: "x", block: {} }],
    ["blockaffinities", "BlockAffinity", { node: "node1", cidr: "10.65.0.0/26", state: "confirmed", deleted: "false" }],
    ["clusterinformations", "ClusterInformation", {}],
    ["kubecontrollersconfigurations", "KubeControllersConfiguration", { controllers: {} }],
  ];
  return [
    {
      name: "objects of the whole cluster",
      run: async (context) => {
        const [resource, kind, spec] = context.pick(cluster);
        const object = {
          apiVersion: "crd.projectcalico.org/v1",
          kind,
          metadata: { name: context.unique("own") },
          spec,
        };
        return judgedReply(`create ${resource}`, await context.tenant.call("POST", `${CALICO}/${resource}`, object));
      },
    },
    {
      name: "settings, blocks and nodes of the cluster changed or deleted",
      run: async (context) => {
        const path = context.pick([
          `${CALICO}/felixconfigurations/default`,
          `${CALICO}/ippools/default-ipv4-ippool`,
          `${CALICO}/clusterinformations/default`,
          `${CALICO}/kubecontrollersconfigurations/default`,
          "/api/v1/nodes/node1",
          "/api/v1/nodes/node1/status",
          `/api/v1/namespaces/${NEIGHBOUR}`,
          `/api/v1/namespaces/${TENANT}`,
        ]);
        const reply =
          context.random(2) === 0
            ? await context.tenant.call("DELETE", path)
            : await context.tenant.patch(path, { metadata: { labels: { x: "y" } } });
        return judgedReply(path, reply);
      },
    },
    {
      name: "objects of another namespace changed, created or deleted",
      run: async (context) => {
        const { tenant, victim } = context;
        const policies = `${CALICO}/namespaces/${NEIGHBOUR}/networkpolicies`;
        const attempts = [
          () => tenant.call("DELETE", pathOf(victim)),
          () => tenant.patch(pathOf(victim), { metadata: { annotations: prefixed({ floatingIPs: "x" }) } }),
          () => tenant.call("DELETE", `${policies}/default.database`),
          () => tenant.patch(`${policies}/default.database`, { spec: { ingress: [{ action: "Allow" }] } }),
          () => tenant.call("POST", `${KUBERNETES}/namespaces/${NEIGHBOUR}/networkpolicies`, allowAll()),
          () => tenant.call("POST", "/api/v1/namespaces", { metadata: { name: "calico-lab" } }),
          () => tenant.call("GET", `/api/v1/namespaces/${NEIGHBOUR}/secrets`),
          () => tenant.call("GET", `${CALICO}/ipamblocks`),
        ];
        return judgedReply("a neighbour's object", await context.pick(attempts)());
      },
    },
    {
      name: "the accounts of calico-ts used",
      run: async (context) => {
        const { tenant } = context;
        const account = context.pick(["calico-node", "calico-kube-controllers", "calico-cni-plugin"]);
        const home = "/api/v1/namespaces/kube-system";
        const as = { "Impersonate-User": `system:serviceaccount:kube-system:${account}` };
        const token = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} };
        const pod = { metadata: { name: context.unique("x") }, spec: { serviceAccountName: account, containers: [] } };
        const attempts = [
          () => tenant.call("POST", `${home}/serviceaccounts/${account}/token`, token),
          () => tenant.call("GET", `${home}/secrets`),
          () => tenant.call("POST", `${home}/pods`, pod),
          () => tenant.call("GET", `${CALICO}/ipamblocks`, undefined, as),
        ];
        return judgedReply(`account ${account}`, await context.pick(attempts)());
      },
    },
  ];
}

const allowAll = () => ({ metadata: { name: "open" }, spec: { podSelector: {}, ingress: [{}] } });

/** The same container ID as that of the lab's kubelet. */
const containerId = (pod: LabPod): string =>
  createHash("sha256")
    .update(`${pod.node}/${podNamespace(pod)}`)
    .digest("hex");

/** The tenant connects to one of its pods, the pod is deleted, and a pod of the neighbour gets its address. */
async function reuseConnection(context: AttackContext): Promise<Result> {
  const { attacker, lab } = context;
  const address = freeAddress(context);
  const annotations = { ipAddrs: JSON.stringify([address]) };
  const first = newPod(context, "first", { node: attacker.node });
  const heir = newPod(context, "heir", { namespace: NEIGHBOUR, node: attacker.node, labels: { app: "db" } });
  const request: ProbeRequest = {
    from: context.targetOf(attacker),
    to: address as IpAddress,
    protocol: "udp",
    port: 7000,
    sourcePort: 20_000 + context.random(20_000),
  };
  const started = await context.startPod(first, annotations);
  if (!("addresses" in started)) {
    await context.stopPod(first, started);
    return { outcome: "skipped", detail: "the address is in use" };
  }
  let before = "silent";
  {
    using prober = new PacketProber();
    prober.listen(context.targetOf(started), "udp", 7000);
    for (let tries = 0; tries < 20 && before !== "reached"; tries++)
      before = (await prober.probe([request], { timeoutMs: 200 }))[0]?.result ?? "silent";
  }
  context.release(); // an open socket would keep the namespace
  if (context.random(2) === 0) {
    // The interface is deleted long before the endpoint.
    lab.host(first.node).run(["ip", "netns", "del", podNamespace(first)]);
    await Bun.sleep(100 + context.random(400));
  }
  await context.stopPod(first, started);
  if (before !== "reached") return { outcome: "skipped", detail: "no connection" };
  const next = await context.startPod(heir, annotations);
  try {
    if (!("addresses" in next)) return { outcome: "skipped", detail: "the address is in use" };
    using prober = new PacketProber();
    prober.listen(context.targetOf(next), "udp", 7000);
    const again = { ...request, from: context.targetOf(attacker) };
    const outcomes = await prober.probe([again, { ...again, sourcePort: 19_999 }], { timeoutMs: 500 });
    return judged(
      outcomes.flatMap(({ result }, i) => (result === "reached" ? [i === 0 ? "the old connection" : "a new one"] : [])),
    );
  } finally {
    context.release();
    await context.stopPod(heir, next);
  }
}

/** A pod of the neighbour starts while the tenant sends to its address. */
async function reachNewPod(context: AttackContext): Promise<Result> {
  const { attacker, lab } = context;
  const address = freeAddress(context);
  const late = newPod(context, "late", { namespace: NEIGHBOUR, labels: { app: "db" } });
  const words = ["ip", "netns", "exec", podNamespace(attacker), "ping", "-n", "-i", "0.005", address];
  const [file, ...args] = lab.host(attacker.node).enter(words);
  const ping = spawn(file, args, { stdio: ["ignore", "pipe", "ignore"] });
  let replies = "";
  ping.stdout.on("data", (chunk: Buffer) => {
    if (chunk.includes("bytes from"))
      replies =
        chunk
          .toString()
          .split("\n")
          .find((line) => line.includes("bytes from")) ?? "";
  });
  const ended = new Promise((resolve) => ping.once("exit", resolve));
  const started = await context.startPod(late, { ipAddrs: JSON.stringify([address]) });
  try {
    if (!("addresses" in started)) return { outcome: "skipped", detail: "the address is in use" };
    await Bun.sleep(500);
    return judged(replies === "" ? [] : [replies]);
  } finally {
    ping.kill("SIGKILL");
    await ended;
    await context.stopPod(late, started);
  }
}

/** The time limit for a reply to the agent's liveness probe. */
const LIVENESS_MS = 3_000;

/** Creates a large object that selects or belongs to a pod of the tenant; the agent must stay alive. */
async function growObjects(context: AttackContext): Promise<Result> {
  const name = context.unique("large");
  const numbers = (count: number) => Array.from({ length: count }, (_, i) => i);
  const mine = { podSelector: { matchLabels: { role: "target" } } };
  const addresses = (count: number) =>
    numbers(count).map((i) => `10.${100 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}/32`);
  const calico = (kind: string, spec: object) => ({
    apiVersion: "crd.projectcalico.org/v1",
    kind,
    metadata: { name },
    spec,
  });
  const [collection, object] = context.pick<readonly [string, { readonly metadata: { readonly name: string } }]>([
    [
      own(KUBERNETES, "networkpolicies"),
      {
        metadata: { name },
        ...{ spec: { ...mine, ingress: [{ from: [{ ipBlock: { cidr: "10.0.0.0/8", except: addresses(6_000) } }] }] } },
      },
    ],
    [
      own(KUBERNETES, "networkpolicies"),
      {
        metadata: { name },
        ...{
          spec: { ...mine, ingress: [{ ports: numbers(3_000).map((i) => ({ protocol: "UDP", port: 2 * i + 1 })) }] },
        },
      },
    ],
    [own(CALICO, "networksets"), calico("NetworkSet", { nets: addresses(20_000) })],
    [
      own(KUBERNETES, "networkpolicies"),
      {
        metadata: { name },
        ...{
          spec: {
            podSelector: {
              matchExpressions: [{ key: "role", operator: "NotIn", values: numbers(3_000).map((i) => `v${i}`) }],
            },
            policyTypes: ["Ingress"],
            ingress: [{ from: [{ podSelector: {} }] }],
          },
        },
      },
    ],
  ]);
  return context.withObject(collection, object, async () => {
    const deadlineMs = performance.now() + LIVENESS_MS;
    do {
      const began = performance.now();
      const { stdout } = context.lab
        .host("node1")
        .run(["curl", "-s", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:9099/liveness"]);
      const tookMs = performance.now() - began;
      if (stdout !== "200" || tookMs > LIVENESS_MS)
        return { outcome: "SUCCEEDED", detail: `liveness: ${stdout} after ${Math.round(tookMs)} ms` };
      await Bun.sleep(100);
    } while (performance.now() < deadlineMs);
    return INEFFECTIVE;
  });
}

/** Time limit until agents have programmed a policy of the tenant. */
const DENIED_MS = 10_000;
const SILENT_TIMES = 3;
const ruleText = (decision: "allow" | "deny"): string =>
  `2 {"match":[],"action":{"kind":"decide","decision":"${decision}"},"annotations":["note=`;

/** A Deny rule must not be replaced by an Allow rule with the same 64-bit Wyhash. */
async function collideRules(context: AttackContext): Promise<Result> {
  const [allow, deny] = collidingTexts(ruleText("allow"), ruleText("deny"), 'agreed"]}').map((text) => {
    const { annotations } = JSON.parse(text.slice(2)) as { readonly annotations: readonly string[] };
    return annotations[0]?.slice("note=".length) ?? "";
  });
  const suffix = context.unique("x");
  const policy = (name: string, order: number, action: "Allow" | "Deny", note: string | undefined) => ({
    ...{
      apiVersion: "crd.projectcalico.org/v1",
      kind: "NetworkPolicy",
      metadata: { name: `default.${name}-${suffix}` },
    },
    spec: {
      ...{ tier: "default", order, selector: "role == 'target'", types: ["Ingress"] },
      ingress: [
        { action: "Deny", protocol: "SCTP" },
        { action, metadata: { annotations: { note } } },
      ],
    },
  });
  const collection = own(CALICO, "networkpolicies");
  return context.withObject(collection, policy("zzz", 1, "Deny", deny), () =>
    context.withObject(collection, policy("aaa", 2, "Allow", allow), async () => {
      const to = addressOf(context.pod(`${TENANT}/target`), 4) as IpAddress;
      using prober = new PacketProber();
      const from = context.targetOf(context.attacker);
      const connect = async () => {
        const [outcome] = await prober.probe([{ from, to, port: 7001, protocol: "tcp" }], { timeoutMs: 300 });
        return outcome?.result ?? "silent";
      };
      // No process listens there: until the Deny rule is programmed, connections are refused. A single connection without a
      // reply may be due to packet loss on a busy machine.
      let result = await connect();
      for (
        let silent = 0, deadlineMs = performance.now() + DENIED_MS;
        silent < SILENT_TIMES && performance.now() < deadlineMs;
        silent = result === "silent" ? silent + 1 : 0
      )
        result = await connect();
      return judged(result === "silent" ? [] : [`a denied connection: ${result}`]);
    }),
  );
}
