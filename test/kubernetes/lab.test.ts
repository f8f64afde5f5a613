// Tests two hosts on a real API server: calico-node with all its parts and the controllers run as processes with the
// manifest's accounts, a fake kubelet starts pods, and kubectl creates policies. The server's audit log shows whether a
// request was denied. Then the server is stopped.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { down } from "../../src/lab/down.ts";
import { breakLab, healLab } from "../../src/lab/faults.ts";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { auditLog } from "../../src/lab/kubernetes/fake-kubelet.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { measureMatrix } from "../../src/lab/matrix.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../src/lab/options.ts";
import { datastoreEnvironment, rolePath } from "../../src/lab/programs.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { addPods, removePod, up } from "../../src/lab/up.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { Pings } from "../functional/lab/pings.ts";
import { isAvailable } from "./available.ts";

const canRun = isAvailable && process.getuid?.() === 0 && existsSync(join(import.meta.dir, "../../dist/calico-node"));
if (isAvailable && !canRun) console.log("a lab on an API server needs root and the executable (make build): skipped");
const suite = canRun ? test : test.skip; // needs root, the executable and an API server
/** `OUTAGE_MS=30000` for a real one. */
const OUTAGE_MS = Number(process.env["OUTAGE_MS"] ?? 5_000);

const quiet = openTerminal({ quiet: true });
const options: LabOptions = { ...DEFAULT_OPTIONS, name: "testapi", nodes: 2, podsPerNode: 0, datastore: "kubernetes" };
let lab: Lab;
let cluster: KubernetesCluster;
beforeAll(async () => {
  if (!canRun) return;
  lab = await up(options, quiet);
  cluster = new KubernetesCluster(lab);
}, 240_000);
afterAll(async () => {
  if (canRun) await down(options.name, quiet);
}, 60_000);

const reached = async (): Promise<string[]> => {
  const cells = await measureMatrix(lab, { protocol: "tcp", port: 80, version: 4, timeoutMs: 500 });
  return cells.filter(({ result }) => result === "reached").map(({ from, to }) => `${from} ${to}`);
};
const routesOn = (node: string): string[] => lab.host(node).run(["ip", "-4", "route", "show"]).stdout.split("\n");
const apply = (object: object): string => cluster.kubectl(["apply", "--filename=-"], JSON.stringify(object));
const policy = (name: string, spec: object): object => ({
  apiVersion: "networking.k8s.io/v1",
  kind: "NetworkPolicy",
  metadata: { name, namespace: "shop" },
  spec,
});
interface PodObject {
  readonly metadata: { readonly annotations?: Readonly<Record<string, string>> };
  readonly status: { readonly phase: string; readonly podIPs?: readonly { readonly ip: string }[] };
}

suite("a pod that the fake kubelet starts gets address, route and policy", async () => {
  addPods(lab, [
    { namespace: "shop", name: "web", node: "node1", labels: { app: "web" } },
    { namespace: "shop", name: "client", node: "node2", labels: { app: "client" } },
  ]);
  const [web, client] = [lab.pod("shop/web"), lab.pod("shop/client")];
  for (const pod of [web, client]) {
    const { metadata, status } = cluster.get<PodObject>(["pod", pod.name, "--namespace=shop"]);
    expect(pod.addresses[0]).toStartWith("10.65.");
    expect(metadata.annotations?.["cni.projectcalico.org/podIP"]).toBe(`${pod.addresses[0]}/32`);
    expect(status).toMatchObject({ phase: "Running", podIPs: [{ ip: pod.addresses[0] }] });
    expect(routesOn(pod.node).some((line) => line.startsWith(`${pod.addresses[0]} dev cali`))).toBe(true);
  }
  const both = ["shop/client shop/web", "shop/web shop/client"];
  const others = async () => (await reached()).filter((pair) => both.includes(pair)).sort();
  await eventually(async () => (await others()).length === 2, 20_000);
  apply(policy("closed", { podSelector: { matchLabels: { app: "web" } } }));
  await eventually(async () => (await others()).join() === "shop/web shop/client", 10_000);
  apply(
    policy("from-friends", {
      podSelector: { matchLabels: { app: "web" } },
      ingress: [{ from: [{ podSelector: { matchLabels: { role: "friend" } } }] }],
    }),
  );
  cluster.kubectl(["label", "pod", "client", "--namespace=shop", "role=friend"]);
  await eventually(async () => (await others()).length === 2, 10_000);
  cluster.kubectl(["label", "pod", "client", "--namespace=shop", "role-"]);
  await eventually(async () => (await others()).length === 1, 10_000);
  cluster.kubectl(["delete", "networkpolicy", "--all", "--namespace=shop"]);
  await eventually(async () => (await others()).length === 2, 10_000);
}, 90_000);

suite("doctor on a healthy cluster runs all checks, has no findings, and prints the hosts that it checked", async () => {
  for (const { words, headline } of [
    {
      words: ["doctor"],
      headline: "Examined: the datastore (2 nodes), this host (node1). Not examined: host node2.",
    },
    {
      words: ["doctor", "--no-host"],
      headline: "Examined: the datastore (2 nodes). Not examined: hosts node1, node2.",
    },
  ]) {
    const doctor = () =>
      lab.host("node1").run([rolePath("calicoctl"), ...words], {
        environment: datastoreEnvironment(lab.options, lab.plan),
      });
    await eventually(() => doctor().code === 0, 20_000, "no findings");
    expect(doctor()).toEqual({ code: 0, stdout: `${headline}\n\nNothing wrong found.\n`, stderr: "" });
  }
}, 60_000);

suite("a deleted pod leaves no address, route or handle", async () => {
  addPods(lab, [{ namespace: "shop", name: "brief", node: "node2", labels: {} }]);
  const brief = lab.pod("shop/brief");
  removePod(lab, brief);
  expect(cluster.tryKubectl(["get", "pod", "brief", "--namespace=shop"]).code).not.toBe(0);
  expect(routesOn("node2").filter((line) => line.startsWith(`${brief.addresses[0]} `))).toEqual([]);
  const show = lab.calicoctl(["ipam", "show", `--ip=${brief.addresses[0]}`]);
  expect(show).toContain("is not assigned");
}, 60_000);

interface AuditEvent {
  readonly verb: string;
  readonly requestURI: string;
  readonly user: { readonly username: string };
  readonly objectRef?: { readonly resource?: string; readonly subresource?: string };
  readonly responseStatus?: { readonly code?: number };
}

suite("TC-I10 every process uses its manifest's account, and no request was denied", async () => {
  // Some requests of a running node come later; these are the ones for its start, pods and policies.
  const events = readFileSync(auditLog(lab), "utf8")
    .split("\n")
    .filter((line) => line.includes("system:serviceaccount:kube-system:calico-"))
    .map((line) => JSON.parse(line) as AuditEvent);
  const denied = events.filter(({ responseStatus }) => [401, 403].includes(responseStatus?.code ?? 0));
  expect(denied.map(({ user, verb, requestURI }) => `${user.username} ${verb} ${requestURI}`)).toEqual([]);
  const did = new Set(
    events.map(({ user, verb, objectRef: { resource, subresource } = {} }) =>
      [user.username.split(":").at(-1), verb, subresource === undefined ? resource : `${resource}/${subresource}`].join(
        " ",
      ),
    ),
  );
  for (const wanted of [
    "calico-node patch nodes/status", // startup
    "calico-node list pods", // Felix
    "calico-node list bgppeers", // BGP service
    "calico-node patch pods/status", // CNI service
    "calico-node create ipamhandles",
    "calico-kube-controllers create leases",
    "calico-kube-controllers list ipamblocks",
  ])
    expect([...did]).toContain(wanted);
  // No program of calico-ts used another account: all of them send the same user agent.
  const strangers = readFileSync(auditLog(lab), "utf8")
    .split("\n")
    .filter((line) => line.includes('"userAgent":"calico-ts') && !line.includes("serviceaccount:kube-system:calico-"))
    .map((line) => (JSON.parse(line) as AuditEvent).user.username);
  expect([...new Set(strangers)]).toEqual(["lab-admin"]); // calicoctl
}, 30_000);

suite("during an outage of the API server pods keep connections and policies; afterwards changes are applied", async () => {
  apply(policy("web-is-closed", { podSelector: { matchLabels: { app: "web" } } }));
  const clientToWeb = async () => (await reached()).includes("shop/client shop/web");
  await eventually(async () => !(await clientToWeb()), 10_000);
  addPods(lab, [{ namespace: "open", name: "other", node: "node1", labels: {} }]);
  await using pings = new Pings(lab);
  const isOpen = (name: string) => !/ web /.test(name);
  await pings.moreOf(5, isOpen);
  breakLab(lab, ["datastore"]);
  const until = performance.now() + OUTAGE_MS;
  while (performance.now() < until) {
    expect(await clientToWeb()).toBe(false);
    await pings.moreOf(5, isOpen);
  }
  await healLab(lab);
  expect(await clientToWeb()).toBe(false);
  await pings.moreOf(5, isOpen);
  const lost = Object.entries(pings.lost()).filter(([name]) => isOpen(name));
  expect(lost).toEqual([]);
  // Later changes arrive.
  cluster.kubectl(["delete", "networkpolicy", "web-is-closed", "--namespace=shop"]);
  await eventually(clientToWeb, 60_000);
  addPods(lab, [{ namespace: "open", name: "later", node: "node2", labels: {} }]);
  await eventually(async () => (await reached()).includes("open/other open/later"), 30_000);
}, 240_000);
