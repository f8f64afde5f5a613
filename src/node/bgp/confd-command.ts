// Implements calico-node -confd: runs the BGP service on the datastore or on Typha.
import { type BgpPlan, BgpService, birdProcess } from "../../bgp/index.ts";
import type { Environment } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";
import { BGP_PREFIXES, typhaSettings } from "../../typha/index.ts";
import { BGP_SERVICE_FILE } from "../supervisor/children.ts";
import { findKubernetes } from "../startup/kubernetes-facts.ts";
import { runMode } from "../mode.ts";
import { type NodeDatastore, openNodeDatastore } from "../node-datastore.ts";
import { nodeName } from "../startup/node-name.ts";
import { openNodeSyncer } from "../node-syncer.ts";
import type { ActivePlan } from "./session-evidence.ts";
import { readSettings } from "../settings.ts";
import { runUntilSignal } from "../signals.ts";

const RUN_FOLDER = "/var/run/calico";

/** @param options.folder BIRD's configuration is written to its subfolder `config` */
export function runConfd(options: { readonly once: boolean; readonly folder: string }): Promise<number> {
  const work = async (log: Logger): Promise<void> => {
    await runUntilSignal(async (signal) => {
      await using opened = await openNodeDatastore(process.env, { log, retryUntil: signal });
      const service = await bgpService(process.env, opened, `${options.folder}/config`, log);
      await service.run(signal, { once: options.once });
    });
  };
  return runMode("BGP service failed", work, process.env["BGP_LOGSEVERITYSCREEN"]);
}

async function bgpService(env: Environment, opened: NodeDatastore, folder: string, log: Logger): Promise<BgpService> {
  const settings = readSettings(env);
  const node = nodeName({ env, file: settings.nodenameFile }, log);
  const kubernetes = await findKubernetes(env);
  const clusterIps = nonEmpty(env["CALICO_ADVERTISE_CLUSTER_IPS"])
    ?.split(",")
    .map((text) => text.trim());
  const routerId = nonEmpty(env["CALICO_ROUTER_ID"]);
  log.info("starting the BGP service", { node, folder, typha: typhaSettings(env, BGP_PREFIXES) !== undefined });
  return new BgpService({
    nodeName: node,
    kubernetesNodeName: settings.kubernetesNode,
    syncer: await openNodeSyncer("bgp", { env, store: opened.store, node, log, usePodCidr: opened.usesPodCidrs }),
    folder,
    birds: {
      4: birdProcess({ socket: `${RUN_FOLDER}/bird.ctl` }),
      6: birdProcess({ socket: `${RUN_FOLDER}/bird6.ctl` }),
    },
    endpointStatusFolder: `${RUN_FOLDER}/endpoint-status`,
    kubernetes,
    secretNamespace: nonEmpty(env["NAMESPACE"]) ?? "kube-system",
    routerId,
    clusterIps,
    usePodCidr: opened.usesPodCidrs,
    logger: log,
    onPlan: (plan) => writeActivePlan(plan, log),
  });
}

/** Read by the supervisor, which starts BIRD after the first plan, by `calicoctl node status` and by `calicoctl doctor`. */
function writeActivePlan({ peers, problems }: BgpPlan, log: Logger): void {
  const active: ActivePlan = {
    pid: process.pid,
    at: new Date().toISOString(),
    peers: peers.map(({ name, neighbor, sourceAddress, password }) => ({
      name,
      neighbor,
      sourceAddress,
      hasPassword: password !== null,
    })),
    problems,
  };
  try {
    replaceFile(BGP_SERVICE_FILE, `${JSON.stringify(active)}\n`);
  } catch (error) {
    log.warn("could not write the active BGP plan", { file: BGP_SERVICE_FILE, error: describeError(error) });
  }
}

const nonEmpty = (text: string | undefined): string | undefined =>
  text === undefined || text.trim() === "" ? undefined : text.trim();
