// Measures the share of the CNI plugin in the start of a pod: from exec to exit if the service answers immediately. It is
// compared with programs that do almost nothing, in alternating calls.
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const RUNS = 80;
const calico = join(import.meta.dir, "../dist/calico");

if (isMainThread) await compare();
else serve(workerData as string);

/** Runs in its own thread, so that the measurement does not delay the answers. */
function serve(path: string): void {
  createServer({ allowHalfOpen: true }, (connection) => {
    connection.on("error", () => {});
    connection.on("data", () => {});
    connection.on("end", () => connection.end("0\n\n"));
  }).listen(path, () => parentPort?.postMessage("ready"));
}

async function compare(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "bench-cni-client-"));
  const socket = join(folder, "cni.sock");
  const worker = new Worker(import.meta.path, { workerData: socket });
  await new Promise((resolve) => worker.once("message", resolve));
  const candidate = (name: string, file: string, command = "DEL") => {
    const [times, cpu]: [number[], number[]] = [[], []];
    return { name, file, command, times, cpu };
  };
  const candidates = [
    candidate("`true`", "/bin/true"),
    candidate("ptp VERSION", "/usr/lib/cni/ptp", "VERSION"),
    candidate("calico", calico),
  ];
  const stdin = Buffer.from(
    JSON.stringify({ cniVersion: "1.0.0", name: "net1", type: "calico", service_socket: socket }),
  );
  for (let i = 0; i < RUNS; i++)
    for (const { file, command, times, cpu } of candidates) {
      const variables = { CNI_CONTAINERID: "c1", CNI_NETNS: "/proc/self/ns/net", CNI_IFNAME: "eth0", CNI_PATH: "/x" };
      const env = { PATH: process.env["PATH"] ?? "", CNI_COMMAND: command, ...variables };
      const startMs = performance.now();
      const child = Bun.spawn([file], { env, stdin, stdout: "ignore", stderr: "ignore" });
      if ((await child.exited) !== 0) throw new Error(`${file} failed`);
      times.push(performance.now() - startMs);
      cpu.push(Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1000);
    }
  const at = (list: readonly number[], share: number): string =>
    (list.toSorted((a, b) => a - b)[Math.floor(list.length * share)] ?? Number.NaN).toFixed(2);
  for (const { name, times, cpu } of candidates)
    console.log(
      `cni-client: ${name.padEnd(22)} p10 ${at(times, 0.1)} p50 ${at(times, 0.5)} ms, CPU p50 ${at(cpu, 0.5)} ms`,
    );
  await worker.terminate();
  rmSync(folder, { recursive: true, force: true });
}
