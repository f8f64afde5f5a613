// Starts etcd and the CNI service in a test host.
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { type CniHost, collect, DIST, k8s, type PluginRun, type Pod } from "./cni-host.ts";

export const ETCD_PORT = 2379; // in the test host's network namespace
const ENDPOINT = `http://127.0.0.1:${ETCD_PORT}`;
export const hasEtcd = Bun.which("etcd") !== null;
if (!hasEtcd) console.log("CNI tests on etcd need etcd: skipped");

const ENV = { DATASTORE_TYPE: "etcdv3", ETCD_ENDPOINTS: ENDPOINT };
const CONF = { datastore_type: "etcdv3", etcd_endpoints: ENDPOINT };

async function startEtcd(host: CniHost) {
  const etcd: ChildProcess = host.start("etcd", [
    ...["--data-dir", join(host.folder, "etcd"), "--unsafe-no-fsync", "--log-level", "error", "--logger", "zap"],
  ]);
  const store = async (what: string): Promise<string> => {
    const run = await collect(host.start(process.execPath, [join(import.meta.dir, "etcd-store.ts"), what], ENV));
    if (run.code !== 0) throw new Error(`etcd-store ${what}: ${run.stderr}`);
    return run.stdout.trim();
  };
  await store("seed");
  return { etcd, left: async () => JSON.parse(await store("left")) as unknown };
}

export async function cluster(host: CniHost) {
  const { etcd, left } = await startEtcd(host);
  const socket = join(host.folder, "run/cni.sock");
  const service = host.start(join(DIST, "calico"), ["cni-service", "--socket", socket], ENV);
  let log = "";
  service.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
  await eventually(() => log.includes("listens"));
  const conf = { service_socket: socket, ...CONF };
  const call = (command: string, pod: Pod, i: number): Promise<PluginRun> =>
    host.call(command, pod, { conf, ...k8s("ns1", `p${i}`) });
  return { etcd, call, left };
}
