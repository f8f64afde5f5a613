// Reads the settings of the datastore from a CalicoAPIConfig file or from the environment. Each setting is declared once;
// a file replaces the environment entirely.
import { readFileSync } from "node:fs";
import { InvalidConfig } from "./errors.ts";

interface Setting {
  readonly type: "text" | "boolean" | "number";
  /** CALICO_<variable> has precedence. Undefined = the setting exists only in a file. */
  readonly variable?: string;
}

const text = (variable?: string): Setting & { readonly type: "text" } => ({
  type: "text",
  variable,
});

const SETTINGS = {
  datastoreType: text("DATASTORE_TYPE"),
  sqlitePath: text("SQLITE_PATH"),
  etcdEndpoints: text("ETCD_ENDPOINTS"),
  etcdDiscoverySrv: text("ETCD_DISCOVERY_SRV"),
  etcdUsername: text("ETCD_USERNAME"),
  etcdPassword: text("ETCD_PASSWORD"),
  etcdKeyFile: text("ETCD_KEY_FILE"),
  etcdCertFile: text("ETCD_CERT_FILE"),
  etcdCACertFile: text("ETCD_CA_CERT_FILE"),
  etcdKey: text(),
  etcdCert: text(),
  etcdCACert: text(),
  kubeconfig: text("KUBECONFIG"),
  kubeconfigInline: text(),
  k8sAPIEndpoint: text("K8S_API_ENDPOINT"),
  k8sKeyFile: text("K8S_KEY_FILE"),
  k8sCertFile: text("K8S_CERT_FILE"),
  k8sCAFile: text("K8S_CA_FILE"),
  k8sAPIToken: text("K8SAPITOKEN"),
  k8sCurrentContext: text("K8S_CURRENT_CONTEXT"),
  calicoAPIGroup: text("CALICO_API_GROUP"),
  k8sInsecureSkipTLSVerify: { type: "boolean", variable: "K8S_INSECURE_SKIP_TLS_VERIFY" },
  k8sDisableNodePoll: { type: "boolean", variable: "K8S_DISABLE_NODE_POLL" },
  usePodCIDR: { type: "boolean", variable: "USE_POD_CIDR" },
  k8sClientQPS: { type: "number", variable: "K8S_CLIENT_QPS" },
  k8sClientBurst: { type: "number", variable: "K8S_CLIENT_BURST" },
} as const satisfies Readonly<Record<string, Setting>>;

type SettingName = keyof typeof SETTINGS;
interface TypeOf {
  readonly text: string;
  readonly boolean: boolean;
  readonly number: number;
}
/** The configured settings, by their names in the file. Defaults are not filled in. */
export type ApiConfig = { readonly [N in SettingName]?: TypeOf[(typeof SETTINGS)[N]["type"]] };

export type Environment = Readonly<Record<string, string | undefined>>;

/** Variables without an unprefixed form, because that name may belong to another program. */
const ONLY_PREFIXED = new Set(["K8SAPITOKEN", "SQLITE_PATH"]);

export function configFromEnvironment(env: Environment): ApiConfig {
  const config: Record<string, unknown> = {};
  for (const [name, setting] of settings()) {
    const variable = setting.variable;
    if (variable === undefined) continue;
    const plain = ONLY_PREFIXED.has(variable) ? undefined : env[variable];
    const value = env[`CALICO_${variable}`] ?? plain;
    if (value === undefined) continue;
    if (setting.type === "text") {
      if (value !== "") config[name] = value;
    } else config[name] = parseSetting(variable, setting.type, value);
  }
  return config;
}

/** Reads a CalicoAPIConfig document; unknown fields are rejected. */
export async function configFromFile(file: string): Promise<ApiConfig> {
  let content: string;
  try {
    content = readFileSync(file, "utf8");
  } catch (error) {
    throw new InvalidConfig(`Error reading config file: ${file}`, { cause: error });
  }
  try {
    return parseApiConfig(await parseDocument(content));
  } catch (error) {
    if (error instanceof InvalidConfig) throw new InvalidConfig(`syntax error in ${file}: ${error.message}`);
    throw error;
  }
}

async function parseDocument(content: string): Promise<unknown> {
  const { load, YAMLException } = await import("js-yaml");
  if (content.trim() === "") return {};
  try {
    return load(content);
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error;
    const where = error.mark === undefined ? "" : `line ${error.mark.line + 1}: `;
    throw new InvalidConfig(`failed to parse config as YAML/JSON: ${where}${error.reason}`, { cause: error });
  }
}

function parseApiConfig(document: unknown): ApiConfig {
  const root = mapping(document ?? {}, "the document");
  for (const field of Object.keys(root))
    if (!["apiVersion", "kind", "metadata", "spec"].includes(field)) throw unknownField(field);
  const { apiVersion, kind } = root;
  if (apiVersion !== "projectcalico.org/v3")
    throw new InvalidConfig(`invalid config file: unknown APIVersion '${apiVersion ?? ""}'`);
  if (kind !== "CalicoAPIConfig")
    throw new InvalidConfig(`invalid config file: expected kind 'CalicoAPIConfig', got '${kind ?? ""}'`);
  const spec = mapping(root["spec"] ?? {}, "spec");
  const config: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(spec)) {
    const setting = Object.hasOwn(SETTINGS, name) ? SETTINGS[name as SettingName] : undefined;
    if (setting === undefined) throw unknownField(name);
    if (value === null || value === "") continue;
    const wanted = setting.type === "text" ? "string" : setting.type;
    // The value of a text setting is not printed: it may be a secret, such as a password that YAML reads as a number.
    const given = setting.type === "text" ? `a ${Array.isArray(value) ? "list" : typeof value}` : JSON.stringify(value);
    if (typeof value !== wanted)
      throw new InvalidConfig(
        `failed to parse config as YAML/JSON: spec.${name}: want a ${setting.type}, got ${given}`,
      );
    config[name] = value;
  }
  return config;
}

const settings = (): [string, Setting][] => Object.entries(SETTINGS);

function parseSetting(variable: string, type: "boolean" | "number", value: string): boolean | number {
  if (type === "boolean") {
    if (/^(1|t|T|TRUE|true|True)$/.test(value)) return true;
    if (/^(0|f|F|FALSE|false|False)$/.test(value)) return false;
    throw new InvalidConfig(`${variable}='${value}': want true or false`);
  }
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number)) throw new InvalidConfig(`${variable}='${value}': want a number`);
  return number;
}

function mapping(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new InvalidConfig(`failed to parse config as YAML/JSON: ${what} is not a mapping`);
  return value as Record<string, unknown>;
}

const unknownField = (field: string): InvalidConfig =>
  new InvalidConfig(
    `failed to parse config as YAML/JSON: error parsing document: field in document is not recognized or is in the wrong location: ${field}`,
  );
