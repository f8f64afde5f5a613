// Renders the CNI configuration: fills in the placeholders of the operator's template or of the default template.
import { InstallError } from "./install-error.ts";
import type { Environment } from "../request/request.ts";

/** Variables that templates contain as `__NAME__`, with their defaults. */
const VARIABLES: Readonly<Record<string, (env: Environment) => string>> = {
  LOG_LEVEL: () => "info",
  LOG_FILE_PATH: () => "/var/log/calico/cni/cni.log",
  LOG_FILE_MAX_SIZE: () => "100",
  LOG_FILE_MAX_AGE: () => "30",
  LOG_FILE_MAX_COUNT: () => "10",
  DATASTORE_TYPE: () => "kubernetes",
  KUBERNETES_NODE_NAME: (env) => env["HOSTNAME"] ?? "",
  CNI_MTU: () => "1500",
  KUBERNETES_SERVICE_HOST: () => "",
  KUBERNETES_SERVICE_PORT: () => "",
  CALICO_API_GROUP: () => "crd.projectcalico.org/v1",
  ETCD_ENDPOINTS: () => "",
  ETCD_DISCOVERY_SRV: () => "",
  REQUIRE_MTU_FILE: () => "false",
};

export const DEFAULT_TEMPLATE = `{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "calico",
      "log_level": "__LOG_LEVEL__",
      "log_file_path": "__LOG_FILE_PATH__",
      "datastore_type": "__DATASTORE_TYPE__",
      "nodename": "__KUBERNETES_NODE_NAME__",
      "mtu": __CNI_MTU__,
      "ipam": { "type": "calico-ipam" },
      "policy": { "type": "k8s" },
      "kubernetes": { "kubeconfig": "__KUBECONFIG_FILEPATH__" },
      "require_mtu_file": __REQUIRE_MTU_FILE__,
      "calico_api_group": "__CALICO_API_GROUP__"
    },
    { "type": "portmap", "snat": true, "capabilities": { "portMappings": true } }
  ]
}
`;

/** Paths and credentials that the installation has written. */
export interface InstalledFiles {
  /** Path on the host, as the plugin will see it. */
  readonly kubeconfig: string;
  readonly serviceAccountToken: string;
  /** Directory of the TLS files on the host. */
  readonly tlsDirectory?: string;
  readonly tlsFiles: readonly string[];
}

/** @throws InstallError if the result is not JSON, so that a runtime never reads an invalid configuration */
export function renderConfig(template: string, env: Environment, facts: InstalledFiles): string {
  const values: Record<string, string> = {};
  for (const [name, fallback] of Object.entries(VARIABLES)) values[name] = env[name] || fallback(env);
  values["KUBECONFIG_FILEPATH"] = facts.kubeconfig;
  values["SERVICEACCOUNT_TOKEN"] = facts.serviceAccountToken;
  for (const [placeholder, file] of [
    ["ETCD_CERT_FILE", "etcd-cert"],
    ["ETCD_CA_CERT_FILE", "etcd-ca"],
    ["ETCD_KEY_FILE", "etcd-key"],
  ] as const)
    values[placeholder] = facts.tlsFiles.includes(file) ? `${facts.tlsDirectory}/${file}` : "";
  const text = template.replace(/__([A-Z0-9_]+?)__/g, (whole, name: string) => {
    const value = values[name];
    // Placeholders are inside JSON strings, so quotes in values are escaped.
    return value === undefined ? whole : JSON.stringify(value).slice(1, -1);
  });
  try {
    JSON.parse(text);
  } catch (error) {
    // Without the text itself, which may contain a token.
    throw new InstallError(
      `the CNI configuration is not valid JSON: ${error instanceof Error ? error.message : error}`,
    );
  }
  return text;
}
