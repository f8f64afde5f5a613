// The kubeconfig the plugin uses when no service answers. It holds a token: root alone may read it.
import { InstallError } from "../install/install-error.ts";
import type { Environment } from "../request/request.ts";

export interface KubeconfigParts {
  readonly server: string;
  /** PEM; without one the server is not verified only when that was asked for. */
  readonly ca?: string;
  readonly skipTlsVerify: boolean;
  readonly token: string;
}

/** What stands in it without quotes is one word: nothing else can be said by an address or a token. */
export function renderKubeconfig({ server, ca, skipTlsVerify, token }: KubeconfigParts): string {
  if (!/^https?:\/\/[\w.:[\]%-]+$/.test(server))
    throw new InstallError(`${JSON.stringify(server)} is no API server's URL`);
  if (!/^[\w.~+/=-]+$/.test(token)) throw new InstallError("the token for the plugin is none"); // itself it is secret
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

/** `https://[fd00::1]:443`; nothing outside a pod. */
export function apiServerUrl(env: Environment): string | undefined {
  const host = env["KUBERNETES_SERVICE_HOST"];
  const port = env["KUBERNETES_SERVICE_PORT"];
  if (!host || !port) return undefined;
  const shown = host.includes(":") ? `[${host}]` : host;
  return `${env["KUBERNETES_SERVICE_PROTOCOL"] || "https"}://${shown}:${port}`;
}
