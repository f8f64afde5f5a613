// Renders the kubeconfig that the plugin uses if the CNI service does not handle a request. It contains a token, so only root
// may read the file.
import { InstallError } from "../install/install-error.ts";
import type { Environment } from "../request/request.ts";

export interface KubeconfigParts {
  readonly server: string;
  /** PEM; required unless `skipTlsVerify` is set. */
  readonly ca?: string;
  readonly skipTlsVerify: boolean;
  readonly token: string;
}

/** Server and token are written to YAML without quotes, so they must not contain characters with a special meaning. */
export function renderKubeconfig({ server, ca, skipTlsVerify, token }: KubeconfigParts): string {
  if (!/^https?:\/\/[\w.:[\]%-]+$/.test(server))
    throw new InstallError(`${JSON.stringify(server)} is not a valid URL of an API server`);
  if (!/^[\w.~+/=-]+$/.test(token)) throw new InstallError("the plugin's token is not valid"); // not shown: it is secret
  const trust = skipTlsVerify
    ? "insecure-skip-tls-verify: true"
    : `certificate-authority-data: "${Buffer.from(ca ?? "").toString("base64")}"`;
  return `# Kubeconfig file for the Calico CNI plugin. Written by calico-node, do not edit.
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: ${server}
    ${trust}
users:
- name: calico
  user:
    token: ${token}
contexts:
- name: calico-context
  context:
    cluster: local
    user: calico
current-context: calico-context
`;
}

/** Returns a URL such as `https://[fd00::1]:443`; undefined outside a pod. */
export function apiServerUrl(env: Environment): string | undefined {
  const host = env["KUBERNETES_SERVICE_HOST"];
  const port = env["KUBERNETES_SERVICE_PORT"];
  if (!host || !port) return undefined;
  const shown = host.includes(":") ? `[${host}]` : host;
  return `${env["KUBERNETES_SERVICE_PROTOCOL"] || "https"}://${shown}:${port}`;
}
