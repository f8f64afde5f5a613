// Tokens for the plugin's account: short-lived, asked from the API server, written to the host before they run out.
// https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
import { readFileSync, watch } from "node:fs";
import { chooseDatastore, type KubeApi, openKubeApi } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { delay } from "../../lib/retry.ts";
import { writePrivately } from "../install/install-files.ts";
import { apiServerUrl, renderKubeconfig } from "./kubeconfig.ts";
import type { Environment } from "../request/request.ts";

const ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";
const LIFETIME_SECONDS = 24 * 3600;
const SHORTEST_MS = 5000;
const SETTLE_MS = 50;

export interface IssuedToken {
  readonly token: string;
  readonly expiresAtMs: number;
}

/**
 * Requests a token that is bound to this node, so that the API server accepts it only for objects of this node
 * (ValidatingAdmissionPolicy calico-own-node-blocks and others). Returns undefined if there is no such account; the caller then
 * uses the pod's own token.
 */
export async function requestToken(env: Environment, log: Logger, given?: KubeApi): Promise<IssuedToken | undefined> {
  const api = given ?? (await openOwnApi(env));
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
        log.warn("The API server binds no token to this node; the CNI plugin may write only through calico-node", {
          node,
          error,
        });
      }
    return await request({});
  } catch (error) {
    if ((error as { code?: unknown }).code !== 404) throw error;
    log.warn("There is no token request for the plugin's account; using the pod's own token", { account, namespace });
    return undefined;
  } finally {
    if (given === undefined) api.close();
  }
}

async function openOwnApi(env: Environment): Promise<KubeApi> {
  const config = chooseDatastore({ datastoreType: "kubernetes" }, { env });
  if (config.type !== "kubernetes") throw new Error("not in a pod");
  return openKubeApi(config, env);
}

/** When to ask again: after a quarter of what is left, plus up to as much again, so that a cluster does not march in step. */
export function nextRefreshMs(
  remainingMs: number,
  options: { readonly intervalMs?: number; readonly random: () => number },
): number {
  const base = Math.max(SHORTEST_MS, options.intervalMs ?? remainingMs / 4);
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

/** Keeps the host's kubeconfig usable until the signal. A failure is tried again soon; the old token still serves. */
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
    let waitMs: number;
    try {
      const issued = await requestToken(env, log, options.api);
      const token = issued?.token ?? readAccountFile("token", directory) ?? "";
      const ca = readAccountFile("ca.crt", directory);
      const skipTlsVerify = env["SKIP_TLS_VERIFY"] === "true";
      writePrivately(options.path, renderKubeconfig({ server, skipTlsVerify, token, ca }));
      log.info("Wrote a fresh token for the CNI plugin", { path: options.path });
      const remaining = issued === undefined ? LIFETIME_SECONDS * 1000 : issued.expiresAtMs - now();
      waitMs = nextRefreshMs(remaining, { ...interval, random });
    } catch (error) {
      log.warn("Could not refresh the CNI plugin's token; trying again", { error });
      waitMs = SHORTEST_MS * (1 + random());
    }
    await waitOrRotation(waitMs, directory, signal);
  }
}

/** Ends early when the projected token directory changes: our own account was rotated. */
async function waitOrRotation(ms: number, directory: string, signal: AbortSignal): Promise<void> {
  const rotated = new AbortController();
  let watcher: ReturnType<typeof watch> | undefined;
  try {
    watcher = watch(directory, () => rotated.abort());
  } catch {
    // not in a pod: only time brings a new token
  }
  try {
    await delay(ms, AbortSignal.any([signal, rotated.signal]));
  } catch {
    if (!signal.aborted) await delay(SETTLE_MS);
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
