// Renews the token of the plugin's account: requests short-lived tokens from the API server, and writes them to the host before
// they expire.
// https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
import { readFileSync, watch } from "node:fs";
import { chooseDatastore, type KubeApi, openKubeApi } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import { writePrivateFile } from "../install/install-files.ts";
import { apiServerUrl, renderKubeconfig } from "./kubeconfig.ts";
import type { Environment } from "../request/request.ts";

const ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";
const LIFETIME_SECONDS = 24 * 3600;
const MIN_DELAY_MS = 5000;
/** Time for all files of a rotated service account to be written. */
const ROTATION_DELAY_MS = 50;

export interface IssuedToken {
  readonly token: string;
  readonly expiresAtMs: number;
}

/**
 * Requests a token that is bound to this node, so that the API server accepts it only for objects of this node
 * (ValidatingAdmissionPolicy calico-own-node-blocks and others). Returns undefined if there is no such account; the caller then
 * uses the pod's own token.
 */
export async function requestToken(env: Environment, log: Logger, openApi?: KubeApi): Promise<IssuedToken | undefined> {
  const api = openApi ?? (await openPodApi(env));
  const account = env["CALICO_CNI_SERVICE_ACCOUNT"] || "calico-cni-plugin";
  const namespace = readAccountFile("namespace") ?? "kube-system";
  const node = env["CALICO_K8S_NODE_REF"] || env["KUBERNETES_NODE_NAME"] || env["NODENAME"];
  const request = async (binding: object) => {
    const reply = await api.json<{ status?: { token?: string; expirationTimestamp?: string } }>({
      method: "POST",
      path: `/api/v1/namespaces/${encodeURIComponent(namespace)}/serviceaccounts/${encodeURIComponent(account)}/token`,
      body: {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenRequest",
        spec: { audiences: [], expirationSeconds: LIFETIME_SECONDS, ...binding },
      },
    });
    const { token, expirationTimestamp } = reply.status ?? {};
    if (token === undefined || expirationTimestamp === undefined) return undefined;
    return { token, expiresAtMs: Date.parse(expirationTimestamp) };
  };
  try {
    if (node !== undefined && node !== "")
      try {
        return await request({ boundObjectRef: { apiVersion: "v1", kind: "Node", name: node } });
      } catch (error) {
        // 400: Kubernetes before 1.31. 404: no such node (or no such account; the request below reports that).
        if (![400, 404].includes((error as { code?: number }).code ?? 0)) throw error;
        log.warn(
          "the API server cannot bind the token to this node; the CNI plugin can write only through calico-node",
          {
            node,
            error,
          },
        );
      }
    return await request({});
  } catch (error) {
    if ((error as { code?: unknown }).code !== 404) throw error;
    log.warn("the plugin's service account does not exist; using the pod's own token", { account, namespace });
    return undefined;
  } finally {
    if (openApi === undefined) api.close();
  }
}

async function openPodApi(env: Environment): Promise<KubeApi> {
  const config = chooseDatastore({ datastoreType: "kubernetes" }, { env });
  if (config.type !== "kubernetes") throw new Error("not in a pod");
  return openKubeApi(config, env);
}

/**
 * Returns the delay before the next request: a quarter of the remaining lifetime, plus a random part of the same length, so that
 * the nodes of a cluster do not send their requests at the same time.
 */
export function nextRefreshMs(
  remainingMs: number,
  options: { readonly intervalMs?: number; readonly random: () => number },
): number {
  const base = Math.max(MIN_DELAY_MS, options.intervalMs ?? remainingMs / 4);
  return base * (1 + options.random());
}

export interface TokenRefreshOptions {
  readonly env: Environment;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** The kubeconfig on the host. */
  readonly path: string;
  readonly accountDirectory?: string;
  readonly random?: () => number;
  readonly now?: () => number;
  readonly api?: KubeApi;
}

/** Renews the token in the host's kubeconfig until `signal` aborts. Failures are retried; the old token is valid meanwhile. */
export async function keepTokenFresh(options: TokenRefreshOptions): Promise<void> {
  const { env, log, signal } = options;
  const random = options.random ?? Math.random;
  const now = options.now ?? Date.now;
  const directory = options.accountDirectory ?? ACCOUNT_DIR;
  const server = apiServerUrl(env);
  if (server === undefined) return;
  const seconds = Number(env["CNI_TOKEN_REFRESH_INTERVAL"]?.replace(/s$/, ""));
  const interval = Number.isFinite(seconds) && seconds > 0 ? { intervalMs: seconds * 1000 } : {};
  while (!signal.aborted) {
    let delayMs: number;
    try {
      const issued = await requestToken(env, log, options.api);
      const token = issued?.token ?? readAccountFile("token", directory) ?? "";
      const ca = readAccountFile("ca.crt", directory);
      const skipTlsVerify = env["SKIP_TLS_VERIFY"] === "true";
      writePrivateFile(options.path, renderKubeconfig({ server, skipTlsVerify, token, ca }));
      log.info("wrote a new token for the CNI plugin", { path: options.path });
      const remaining = issued === undefined ? LIFETIME_SECONDS * 1000 : issued.expiresAtMs - now();
      delayMs = nextRefreshMs(remaining, { ...interval, random });
    } catch (error) {
      log.warn("could not renew the CNI plugin's token, retrying", { error });
      delayMs = MIN_DELAY_MS * (1 + random());
    }
    await delayOrRotation(delayMs, directory, signal);
  }
}

/** Ends early if the projected token directory changes, because the pod's own token was rotated. */
async function delayOrRotation(ms: number, directory: string, signal: AbortSignal): Promise<void> {
  const rotated = new AbortController();
  let watcher: ReturnType<typeof watch> | undefined;
  try {
    watcher = watch(directory, () => rotated.abort());
  } catch {
    // not in a pod: there is no directory to watch
  }
  try {
    await delay(ms, AbortSignal.any([signal, rotated.signal]));
  } catch {
    if (!signal.aborted) await delay(ROTATION_DELAY_MS);
  } finally {
    watcher?.close();
  }
}

function readAccountFile(name: string, directory = ACCOUNT_DIR): string | undefined {
  try {
    return readFileSync(`${directory}/${name}`, "utf8").trim();
  } catch {
    return undefined;
  }
}
