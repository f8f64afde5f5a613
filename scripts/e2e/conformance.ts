// Runs the NetworkPolicy specs of Kubernetes on a cluster of the lab. No DNS is required. Specs for SCTP require kernel support
// and are skipped.
import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { dirname } from "node:path";
import { baseEnvironment } from "../../src/lab/host.ts";
import { AGNHOST_IMAGE } from "../../src/lab/kubernetes/image-names.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { inNamespace } from "../../src/lab/kubernetes/control-plane.ts";
import { programPath } from "../../src/lab/kubernetes/programs.ts";
import { readSummary, type Summary } from "./summary.ts";

export interface ConformanceOptions {
  readonly focus: string;
  readonly log: string;
  /** Called when a spec ends. */
  readonly onSpec: (line: string) => void;
}

export async function runConformance(cluster: KubernetesCluster, options: ConformanceOptions): Promise<Summary> {
  nameImage(cluster);
  const flags = {
    provider: "skeleton",
    kubeconfig: cluster.kubeconfig,
    "num-nodes": String(cluster.lab.plan.nodes.length),
    "ginkgo.focus": options.focus,
    "ginkgo.skip": "SCTPConnectivity",
    "ginkgo.no-color": "true",
    "ginkgo.v": "true",
  };
  const words = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  const [file, ...args] = inNamespace(cluster, [programPath("e2e.test"), ...words]);
  const { PATH = "", ...environment } = baseEnvironment();
  const child = spawn(file, args, {
    env: { ...environment, PATH: `${dirname(programPath("kubectl"))}:${PATH}` },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const log = createWriteStream(options.log);
  let output = "";
  const take = (chunk: Buffer) => {
    log.write(chunk);
    const text = chunk.toString();
    output += text;
    for (const line of text.split("\n")) if (/^• (\[FAILED\] )?\[[\d.]+ seconds\]/.test(line)) options.onSpec(line);
  };
  child.stdout.on("data", take);
  child.stderr.on("data", take);
  const stop = () => child.kill("SIGKILL");
  process.once("exit", stop);
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  process.off("exit", stop);
  log.end();
  const summary = readSummary(output);
  if (summary === undefined) throw new Error(`e2e.test ended with ${code} and no summary; see ${options.log}`);
  return summary;
}

/** Tags the agnhost image with the names that the specs use, which the suite lists. */
function nameImage(cluster: KubernetesCluster): void {
  const list = Bun.spawnSync([programPath("e2e.test"), "--list-images"]).stdout.toString();
  const names = list.split("\n").flatMap((line) => (line.includes("/agnhost:") ? line.trim() : []));
  if (names.length === 0) throw new Error("e2e.test --list-images lists no agnhost image");
  for (const { host } of cluster.places) {
    const tag = ["--namespace", "k8s.io", "images", "tag", "--force", AGNHOST_IMAGE, ...names];
    const result = host.run([programPath("ctr"), ...tag]);
    if (result.code !== 0) throw new Error(`${host.name}: ${result.stderr.trim()}`);
  }
}
