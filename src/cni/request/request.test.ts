import { expect, test } from "bun:test";
import { CniError } from "../error.ts";
import { parseRequest, SUPPORTED_VERSIONS } from "./request.ts";

const env = { CNI_COMMAND: "ADD", CNI_CONTAINERID: "cid1", CNI_NETNS: "/n", CNI_IFNAME: "eth0", CNI_PATH: "/bin" };
const conf = JSON.stringify({ cniVersion: "1.0.0", name: "net1", type: "calico" });

function refusal(
  change: Record<string, string | undefined>,
  stdin = conf,
): { code: number; msg: string; details?: string } {
  try {
    parseRequest("calico", { ...env, ...change }, stdin);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    return { code: error.code, msg: error.message, details: error.details };
  }
  throw new Error("was accepted");
}

const cases: readonly {
  name: string;
  change?: Record<string, string | undefined>;
  stdin?: string;
  code: number;
  msg: RegExp;
}[] = [
  { name: "an unknown command", change: { CNI_COMMAND: "FOO" }, code: 4, msg: /unknown CNI_COMMAND: FOO/ },
  { name: "no container ID", change: { CNI_CONTAINERID: undefined }, code: 4, msg: /\[CNI_CONTAINERID\] missing/ },
  { name: "no namespace on ADD", change: { CNI_NETNS: "" }, code: 4, msg: /\[CNI_NETNS\] missing/ },
  {
    name: "several missing variables",
    change: { CNI_IFNAME: "", CNI_PATH: "" },
    code: 4,
    msg: /\[CNI_IFNAME,CNI_PATH\] missing/,
  },
  { name: "a container ID that is a path", change: { CNI_CONTAINERID: "../x" }, code: 4, msg: /containerID/ },
  { name: "an interface name with a slash", change: { CNI_IFNAME: "a/b" }, code: 4, msg: /interface name/ },
  { name: "an interface name that is too long", change: { CNI_IFNAME: "a".repeat(16) }, code: 4, msg: /too long/ },
  { name: "an interface named ..", change: { CNI_IFNAME: ".." }, code: 4, msg: /interface name/ },
  { name: "invalid JSON", stdin: "{", code: 6, msg: /unmarshall/ },
  { name: "an empty input", stdin: "", code: 6, msg: /empty/ },
  { name: "a list", stdin: "[]", code: 6, msg: /object/ },
  { name: "a null configuration", stdin: "null", code: 7, msg: /network name/ },
  { name: "no network name", stdin: `{"cniVersion":"1.0.0"}`, code: 7, msg: /network name/ },
  {
    name: "a network name that begins with a dot",
    stdin: `{"name":"..","cniVersion":"1.0.0"}`,
    code: 7,
    msg: /network name/,
  },
  {
    name: "a network name that is not a string",
    stdin: `{"name":3,"cniVersion":"1.0.0"}`,
    code: 6,
    msg: /name: want text/,
  },
  {
    name: "a version that is not a string",
    stdin: `{"name":"n","cniVersion":1}`,
    code: 6,
    msg: /cniVersion: want text/,
  },
  { name: "a network name that is a path", stdin: `{"name":"a/b"}`, code: 7, msg: /network name/ },
  {
    name: "an unknown version",
    stdin: `{"cniVersion":"9.9.9","name":"n"}`,
    code: 1,
    msg: /incompatible CNI versions/,
  },
];
for (const { name, change, stdin, code, msg } of cases)
  test(`CI-006 ${name} is rejected with code ${code}`, () => {
    const refused = refusal(change ?? {}, stdin);
    expect(refused.code).toBe(code);
    expect(refused.msg).toMatch(msg);
  });

test("CI-006 DEL does not require a namespace, and VERSION requires no variables", () => {
  expect(parseRequest("calico", { ...env, CNI_COMMAND: "DEL", CNI_NETNS: undefined }, conf).netns).toBe("");
  expect(parseRequest("calico", { CNI_COMMAND: "VERSION" }, conf).command).toBe("VERSION");
});

test("CI-005 CHECK requires version 0.4.0, STATUS and GC require 1.1.0", () => {
  const with_ = (version: string) => JSON.stringify({ cniVersion: version, name: "n" });
  expect(refusal({ CNI_COMMAND: "CHECK" }, with_("0.3.1"))).toMatchObject({ code: 1 });
  expect(parseRequest("calico", { ...env, CNI_COMMAND: "CHECK" }, with_("0.4.0")).cniVersion).toBe("0.4.0");
  for (const command of ["STATUS", "GC"]) {
    expect(refusal({ CNI_COMMAND: command }, with_("1.0.0")).msg).toBe(`config version does not allow ${command}`);
    expect(parseRequest("calico", { CNI_COMMAND: command, CNI_PATH: "/bin" }, with_("1.1.0")).command as string).toBe(
      command,
    );
  }
});

test("CI-003 every version of the specification is accepted; the default is 0.2.0", () => {
  for (const version of SUPPORTED_VERSIONS)
    expect(parseRequest("calico", env, JSON.stringify({ cniVersion: version, name: "n" })).cniVersion).toBe(version);
  expect(parseRequest("calico", env, `{"name":"n"}`).cniVersion).toBe("0.2.0");
});

test("CI-016 the first prefix of the agent's list is used", () => {
  const prefix = (value: string | undefined) =>
    parseRequest("calico", { ...env, FELIX_INTERFACEPREFIX: value }, conf).interfacePrefix;
  expect([prefix(undefined), prefix(""), prefix("tap,cali")]).toEqual(["cali", "cali", "tap"]);
});

test("CI-003 the default version is 0.2.0 for calico and 0.1.0 for calico-ipam", () => {
  const plain = JSON.stringify({ name: "n", cniVersion: null });
  expect(parseRequest("calico", env, plain).cniVersion).toBe("0.2.0");
  expect(parseRequest("calico-ipam", env, plain).cniVersion).toBe("0.1.0");
});

test("CI-008 name and version are matched without regard to case, and the last one applies", () => {
  const stdin = `{"name":"a b","NAME":"n","cniversion":"0.3.1"}`;
  expect(parseRequest("calico", env, stdin).cniVersion).toBe("0.3.1");
});
