// Targets for files and settings: kubeconfig, CalicoAPIConfig, Felix's settings, and input of calicoctl.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConvertFault } from "../../../src/calicoctl/convert/fault.ts";
import { convertV1 } from "../../../src/calicoctl/convert/v1-resources.ts";
import { Failure } from "../../../src/calicoctl/command-line/failure.ts";
import { parseResources } from "../../../src/calicoctl/input/resources.ts";
import { toValue } from "../../../src/calicoctl/input/values.ts";
import { parseYaml } from "../../../src/calicoctl/input/yaml.ts";
import { toYaml } from "../../../src/calicoctl/output/yaml.ts";
import { TemplateFault } from "../../../src/calicoctl/template/lexer.ts";
import { parseTemplate } from "../../../src/calicoctl/template/parser.ts";
import { configFromFile } from "../../../src/datastore/api-config.ts";
import { InvalidConfig } from "../../../src/datastore/errors.ts";
import { parseKubeconfig } from "../../../src/datastore/kubernetes/kubeconfig.ts";
import {
  ConfigEngine,
  ConfigError,
  ConfigFileError,
  environmentLayer,
  parseConfigFile,
} from "../../../src/felix/config/index.ts";
import { felixSettingNames, felixSettingValue } from "../../../src/model/index.ts";
import { DiscoveryError, parseAddresses } from "../../../src/typha/discovery.ts";
import { json } from "../structure/json.ts";
import { text } from "../structure/text.ts";
import { type FuzzTarget, require, requireEqual, textOf } from "../target.ts";

/** Stands for a token or a password in the corpus. No error may quote it from a field that holds secrets. */
const SECRET = "sEcReTvAlUe";

const YAML_WORDS = [
  "- ",
  ": ",
  "&a ",
  "*a",
  "<<: *a",
  "!!str ",
  "!!binary ",
  "|\n",
  ">-\n",
  "---\n",
  "...\n",
  "? ",
  "{",
  "}",
  "[",
  "]",
  "#",
  "'",
  '"',
  "\t",
  "%YAML 1.1\n",
  "null",
  "~",
  "yes",
  "0o17",
  "1_000",
];

function readKubeconfig(input: Uint8Array): boolean {
  const content = textOf(input);
  try {
    const { server, exec } = parseKubeconfig(content);
    require(server !== "" &&
      (exec === undefined || exec.command !== ""), "a server, and a command if there is a plugin");
    return true;
  } catch (error) {
    // Other errors may quote the secret as the name of a context, cluster or user.
    if (error instanceof Error && error.message.includes("is not valid YAML"))
      require(!error.message.includes(SECRET), `the error shows a secret: ${error.message}`);
    throw error;
  }
}

async function readResources(input: Uint8Array): Promise<boolean> {
  const source = (content: string) => ({ file: "-", text: content });
  const found = await parseResources(source(textOf(input)), () => {});
  for (const { resource } of found) {
    const written = toYaml(resource);
    const [again] = await parseResources(source(written), () => {});
    requireEqual(toYaml(again?.resource), written, "a resource printed as YAML and read again");
  }
  return found.length > 0;
}

function convert(input: Uint8Array): boolean {
  for (const { root } of parseYaml(textOf(input), "-", () => {}))
    if (root !== undefined) {
      const { kind, metadata } = convertV1(toValue(root));
      require(kind !== "" && typeof metadata === "object", "a converted resource has a kind and metadata");
    }
  return true;
}

const hostFiles = { exists: () => true, findExecutable: (name: string) => `/usr/bin/${name}` };

/** Lines of NAME=value, as environment and as a configuration file. */
function readSettings(input: Uint8Array): boolean {
  const content = textOf(input);
  const env: Record<string, string> = {};
  for (const line of content.split("\n")) {
    const equals = line.indexOf("=");
    if (equals > 0) env[`FELIX_${line.slice(0, equals)}`] = line.slice(equals + 1);
  }
  const engine = new ConfigEngine(hostFiles, { hostname: "node" });
  engine.update({ "environment variable": environmentLayer(env) });
  engine.update({ "environment variable": {}, "config file": parseConfigFile(content) });
  for (const value of Object.values(env)) {
    attempt(DiscoveryError, () => parseAddresses(value));
    for (const name of felixSettingNames()) felixSettingValue(name, value);
  }
  return engine.resolved.sources.size > 0;
}

function attempt(rejection: typeof DiscoveryError, action: () => unknown): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof rejection)) throw error;
  }
}

async function readApiConfig(input: Uint8Array): Promise<boolean> {
  const folder = mkdtempSync(join(tmpdir(), "fuzz-config-"));
  try {
    const file = join(folder, "calicoctl.cfg");
    writeFileSync(file, input);
    return Object.keys(await configFromFile(file)).length > 0;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export const targets: Readonly<Record<string, FuzzTarget>> = {
  kubeconfig: {
    about: "kubeconfig files",
    structure: text,
    dictionary: [
      ...YAML_WORDS,
      "clusters:",
      "users:",
      "contexts:",
      "current-context:",
      "exec:",
      "certificate-authority-data:",
    ],
    rejections: [InvalidConfig],
    run: readKubeconfig,
  },
  "api-config": {
    about: "CalicoAPIConfig files",
    structure: text,
    dictionary: [...YAML_WORDS, "datastoreType:", "etcdEndpoints:", "kubeconfig:"],
    rejections: [InvalidConfig],
    run: readApiConfig,
  },
  "yaml-resources": {
    about: "manifests that calicoctl reads",
    structure: text,
    dictionary: [...YAML_WORDS, "apiVersion: projectcalico.org/v3\n", "kind: NetworkPolicy\n", "selector: ", "spec:\n"],
    rejections: [Failure],
    run: readResources,
  },
  "convert-v1": {
    about: "resources of calicoctl v1, to be converted",
    structure: (input, context) => (context.random.oneIn(2) ? text : json)(input, context),
    dictionary: [...YAML_WORDS, "kind: policy\n", "selector: ", "tag: "],
    rejections: [Failure, ConvertFault],
    run: convert,
  },
  "go-template": {
    about: "templates of calicoctl's output",
    structure: text,
    dictionary: [
      "{{",
      "}}",
      "{{range",
      "{{end}}",
      "{{if",
      "{{else",
      "{{with",
      "{{$x := .}}",
      "|",
      "printf",
      "{{/*",
      "*/}}",
      "{{-",
      "-}}",
      "`",
    ],
    rejections: [TemplateFault],
    run: (input) => typeof parseTemplate("fuzz", textOf(input)) === "object",
  },
  "felix-settings": {
    about: "Felix's environment and configuration file",
    structure: text,
    dictionary: [
      "none",
      "true",
      "tcp:0.0.0.0/0:22",
      "Drop",
      "LogSeverityScreen=",
      "FailsafeInboundHostPorts=",
      "/regex/",
      "1,2-3",
      "eth0",
      "http://[::1]:2379",
    ],
    rejections: [ConfigError, ConfigFileError],
    run: readSettings,
  },
};
