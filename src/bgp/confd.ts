// `calico-node -confd`: the BGP service as a program of its own. Settings come from the environment, once.
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { parseArgs } from "node:util";
import {
  chooseDatastore,
  configFromEnvironment,
  createSyncer,
  type DatastoreConfig,
  openDatastore,
  openKubeApi,
} from "../datastore/index.ts";
import { createLogger, formatText, type Logger } from "../lib/log.ts";
import { birdProcess } from "./service/install.ts";
import { BgpService } from "./service/service.ts";

const RUN_FOLDER = "/var/run/calico";

export async function main(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: argv.map((word) => word.replace(/^-(?=[a-z]{2})/, "--")), // the original's flags have one dash
    options: {
      "confd-run-once": { type: "boolean" },
      "confd-confdir": { type: "string" },
    },
    strict: false,
  });
  const { env } = process;
  const logger = createLogger({ level: "info", write: (record) => console.error(formatText(record)) });
  const abort = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => abort.abort());
  const api = configFromEnvironment(env);
  const config = chooseDatastore(api, { env });
  const datastore = await openDatastore(config);
  const kubernetes = kubernetesBeside(config, api, env);
  const nodeName = findNodeName(env);
  const usePodCidr = config.type === "kubernetes" && config.usePodCidr;
  const folder = `${String(values["confd-confdir"] ?? "/etc/calico/confd")}/config`;
  const clusterIps = filled(env["CALICO_ADVERTISE_CLUSTER_IPS"])
    ?.split(",")
    .map((text) => text.trim());
  const routerId = filled(env["CALICO_ROUTER_ID"]);
  const kubernetesNodeName = filled(env["CALICO_K8S_NODE_REF"]);
  const service = new BgpService({
    nodeName,
    ...(kubernetesNodeName === undefined ? {} : { kubernetesNodeName }),
    syncer: createSyncer("bgp", datastore, { hostname: nodeName, usePodCidr, onFailure: reportFailure(logger) }),
    folder,
    birds: {
      4: birdProcess({ socket: `${RUN_FOLDER}/bird.ctl` }),
      6: birdProcess({ socket: `${RUN_FOLDER}/bird6.ctl` }),
    },
    endpointStatusFolder: `${RUN_FOLDER}/endpoint-status`,
    ...(kubernetes === undefined ? {} : { kubernetes: await openKubeApi(kubernetes, env) }),
    secretNamespace: filled(env["NAMESPACE"]) ?? "kube-system",
    ...(routerId === undefined ? {} : { routerId }),
    ...(clusterIps === undefined ? {} : { clusterIps }),
    usePodCidr,
    logger,
  });
  logger.info("The BGP service starts", { node: nodeName, folder, datastore: config.type });
  await service.run(abort.signal, { once: values["confd-run-once"] === true });
  await datastore.close();
  return 0;
}

/** The first time is worth a line; what goes on is told when it has lasted. */
function reportFailure(logger: Logger): (error: unknown, lasting: boolean) => void {
  let said = "";
  return (error, lasting) => {
    const text = `${error instanceof Error ? error.message : String(error)} ${lasting}`;
    if (text === said) return;
    said = text;
    logger.warn("The datastore does not answer; trying again", { error, lasting });
  };
}

/** Secrets and services are Kubernetes' own, also where our datastore is another. */
function kubernetesBeside(
  config: DatastoreConfig,
  api: ReturnType<typeof configFromEnvironment>,
  env: NodeJS.ProcessEnv,
) {
  if (config.type === "kubernetes") return config;
  if (api.kubeconfig === undefined && env["KUBERNETES_SERVICE_HOST"] === undefined) return undefined;
  const beside = chooseDatastore({ ...api, datastoreType: "kubernetes" }, { env });
  return beside.type === "kubernetes" ? beside : undefined;
}

function findNodeName(env: NodeJS.ProcessEnv): string {
  const named = filled(env["NODENAME"]);
  if (named !== undefined) return named;
  try {
    const noted = readFileSync("/var/lib/calico/nodename", "utf8").trim();
    if (noted !== "") return noted;
  } catch {
    // startup has not noted it: the host's own name
  }
  return (filled(env["HOSTNAME"]) ?? hostname()).trim().toLowerCase();
}

const filled = (text: string | undefined): string | undefined =>
  text === undefined || text.trim() === "" ? undefined : text.trim();
