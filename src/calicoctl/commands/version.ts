// Implements `calicoctl version`, which prints the version of this program and that of the cluster, as its nodes recorded it.
import { BUILD, VERSION_ANNOTATION } from "../../lib/process/build.ts";
import type { Call } from "../table/flags.ts";
import type { versionGrammar } from "../table/resources.ts";
import { UsageError } from "../../lib/command-line/usage-error.ts";
import { Failure } from "../command-line/failure.ts";
import { toJson } from "../output/json.ts";
import { ignoreUnreadable, readClusterInformation } from "../../model/index.ts";

export async function run(call: Call<typeof versionGrammar>): Promise<number> {
  const { flags, io } = call;
  const isJson = flags.output === "json";
  const intervalMs = pollIntervalMs(flags.poll ?? "0");
  const client = { clientVersion: BUILD.version, gitCommit: BUILD.commit };
  if (isJson && flags.client) io.out(toJson(client));
  if (!isJson) io.out(`Client Version:    ${BUILD.version}\nGit commit:        ${BUILD.commit}\n`);
  if (flags.client) return 0;
  const { openStore } = await import("../resources/client.ts");
  const { describe } = await import("../resources/results.ts");
  await using store = await openStore(call, { requests: "few" });
  let shown = "";
  for (;;) {
    let text: string;
    try {
      const information = await store.get({ kind: "ClusterInformation", name: "default" });
      const { calicoVersion, clusterType } = readClusterInformation(information, ignoreUnreadable);
      const version = calicoVersion ?? information.metadata.annotations?.[VERSION_ANNOTATION];
      text = isJson
        ? toJson({ ...client, clusterVersion: version || null, clusterType: clusterType || null })
        : `Cluster Version:   ${version || "unknown (no calico-node has recorded its version)"}\nCluster Type:      ${clusterType || "unknown"}\n`;
    } catch (error) {
      throw new Failure(`Unable to retrieve Cluster Version or Type: ${describe(error)}`, { cause: error });
    }
    if (text !== shown) io.out(text);
    shown = text;
    if (intervalMs === 0) return 0;
    await Bun.sleep(intervalMs);
  }
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

function pollIntervalMs(text: string): number {
  if (text === "0") return 0;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text)
    throw new UsageError(`invalid --poll ${text}: want a duration such as 5s or 1m30s`);
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * (UNITS[unit ?? ""] ?? 0), 0);
}
