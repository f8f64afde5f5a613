// calicoctl version: the version of this program, and the cluster's as its nodes recorded it.
import { BUILD, VERSION_ANNOTATION } from "../../lib/build.ts";
import type { Call } from "../command.ts";
import { Failure, UsageFailure } from "../failure.ts";
import { toJson, wantsJson } from "../output/json.ts";

export async function run(call: Call): Promise<number> {
  const { flags, world } = call;
  const isJson = wantsJson(call);
  const everyMs = pollInterval(flags.value("poll") ?? "0");
  const client = { clientVersion: BUILD.version, gitCommit: BUILD.commit };
  if (isJson && flags.has("client")) world.out(toJson(client));
  if (!isJson) world.out(`Client Version:    ${BUILD.version}\nGit commit:        ${BUILD.commit}\n`);
  if (flags.has("client")) return 0;
  const { openStore } = await import("../client.ts");
  const { describe } = await import("../results.ts");
  await using store = await openStore(call, { requests: "few" });
  let shown = "";
  for (;;) {
    let text: string;
    try {
      const { spec, metadata } = await store.get({ kind: "ClusterInformation", name: "default" });
      const { calicoVersion, clusterType } = spec as { readonly calicoVersion?: string; readonly clusterType?: string };
      const version = calicoVersion || metadata.annotations?.[VERSION_ANNOTATION];
      text = isJson
        ? toJson({ ...client, clusterVersion: version || null, clusterType: clusterType || null })
        : `Cluster Version:   ${version || "unknown (no calico-node has recorded its version)"}\nCluster Type:      ${clusterType || "unknown"}\n`;
    } catch (error) {
      throw new Failure(`Unable to retrieve Cluster Version or Type: ${describe(error)}`, { cause: error });
    }
    if (text !== shown) world.out(text);
    shown = text;
    if (everyMs === 0) return 0;
    await Bun.sleep(everyMs);
  }
}

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

function pollInterval(text: string): number {
  if (text === "0") return 0;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text)
    throw new UsageFailure(`invalid --poll ${text}: want a duration such as 5s or 1m30s`);
  return parts.reduce((sum, [, number, unit]) => sum + Number(number) * (UNITS[unit ?? ""] ?? 0), 0);
}
