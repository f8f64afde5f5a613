import { expect, test } from "bun:test";
import { silentLogger } from "../../lib/log/log.ts";
import { nodeName } from "./node-name.ts";

const cases: { name: string; env: Record<string, string>; file?: string; want: string }[] = [
  {
    name: "NODENAME first, case kept, trimmed",
    env: { NODENAME: " Node-A ", HOSTNAME: "h" },
    file: "f",
    want: "Node-A",
  },
  {
    name: "then the file of the last startup",
    env: { NODENAME: "  ", HOSTNAME: "h" },
    file: "from-file\n",
    want: "from-file",
  },
  { name: "then HOSTNAME in lower case", env: { HOSTNAME: " Web-1.Example " }, file: "", want: "web-1.example" },
  { name: "then the host's own", env: {}, want: "os-host" },
];
for (const { name, env, file, want } of cases)
  test(`NB-020 ${name}`, () =>
    expect(nodeName({ env, file: "x", readFile: () => file, hostname: () => "OS-Host\n" }, silentLogger)).toBe(want));

test("NB-020 startup fails if the nodename file cannot be read", () =>
  expect(() => nodeName({ env: {}, file: "/proc/self/mem/x" }, silentLogger)).toThrow("cannot read the node's name"));
