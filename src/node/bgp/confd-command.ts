// calico-node -confd: the BGP service as a program of its own, on the datastore or on a Typha in front of it.
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
import type { PlanInForce } from "./session-evidence.ts";
import { readSettings } from "../settings.ts";
import { runUntilSignal } from "../signals.ts";

const RUN_FOLDER = "/var/run/calico";

/** @param options.folder contains the folder `config` for the files of BIRD */
export function runConfd(options: { readonly once: boolean; readonly folder: string }): Promise<number> {
  const work = async (log: Logger): Promise<void> => {
    await runUntilSignal(async (signal) => {
      await using opened = await openNodeDatastore(process.env, { log, retryUntil: signal });
      const service = await bgpService(process.env, opened, `${options.folder}/config`, log);
      await service.run(signal, { once: options.once });
    });
  };
  return runMode("the BGP service cannot go on", work, process.env["BGP_LOGSEVERITYSCREEN"]);
}

async function bgpService(env: Environment, opened: NodeDatastore, folder: string, log: Logger): Promise<BgpService> {
  const settings = readSettings(env);
  const node = nodeName({ env, file: settings.nodenameFile }, log);
  const kubernetes = await findKubernetes(env);
  const clusterIps = filled(env["CALICO_ADVERTISE_CLUSTER_IPS"])
    ?.split(",")
    .map((text) => text.trim());
  const routerId = filled(env["CALICO_ROUTER_ID"]);
  log.info("the BGP service starts", { node, folder, typha: typhaSettings(env, BGP_PREFIXES) !== undefined });
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
    secretNamespace: filled(env["NAMESPACE"]) ?? "kube-system",
    routerId,
    clusterIps,
    usePodCidr: opened.usesPodCidrs,
    logger: log,
    onPlan: (made) => tellPlan(made, log),
  });
}

/** For who waits for the first plan, and for who asks what is wrong with the one in force. */
function tellPlan({ peers, problems }: BgpPlan, log: Logger): void {
  const inForce: PlanInForce = {
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
    replaceFile(BGP_SERVICE_FILE, `${JSON.stringify(inForce)}\n`);
  } catch (error) {
    log.warn("what BGP is doing could not be written down", { file: BGP_SERVICE_FILE, error: describeError(error) });
  }
}

const filled = (text: string | undefined): string | undefined =>
  text === undefined || text.trim() === "" ? undefined : text.trim();
