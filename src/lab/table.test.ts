import { expect, test } from "bun:test";
import { parse } from "../lib/command-line/parse.ts";
import { LAB } from "./table.ts";

const parsed = (line: string) => parse(LAB, line.split(" "));

const accepted: readonly {
  readonly line: string;
  readonly args?: object;
  readonly flags?: object;
  readonly rest?: readonly string[];
}[] = [
  { line: "break process node1 -felix", args: { NODE: "node1", NAME: "-felix" } },
  { line: "break process node1 -felix --name two", args: { NODE: "node1", NAME: "-felix" }, flags: { name: "two" } },
  { line: "break --name=two process node1 -- -confd", args: { NODE: "node1", NAME: "-confd" }, flags: { name: "two" } },
  { line: "break link", args: { NODE: undefined, INTERFACE: undefined } },
  { line: "apply -f policy.yaml", flags: { filename: "policy.yaml" } },
  { line: "up --nodes 2 --ipv6", flags: { nodes: 2, ipv6: true, pods: undefined } },
  { line: "exec pod1 -- ls -f", args: { "NODE|POD": "pod1" }, rest: ["ls", "-f"] },
  { line: "kubectl get pods -o wide --name x", rest: ["get", "pods", "-o", "wide", "--name", "x"], flags: {} },
  { line: "kubectl -n kube-system get pods", rest: ["-n", "kube-system", "get", "pods"] },
  { line: "kubectl --name two -- get pods", rest: ["get", "pods"], flags: { name: "two" } },
  { line: "matrix", flags: { protocol: "tcp", port: 80, version: "4" } },
  { line: "set node1 A=1 B=2", args: { NODE: "node1", "NAME=VALUE": ["A=1", "B=2"] } },
];
for (const { line, args, flags, rest } of accepted)
  test(`${line} is accepted`, () => {
    const result = parsed(line);
    if (result.type !== "call") throw new Error(result.type);
    const { values } = result;
    if (args !== undefined) expect(values.args).toEqual(args as typeof values.args);
    expect(values.flags).toMatchObject(flags ?? {});
    if (rest !== undefined) expect(values.rest).toEqual(rest);
  });

const rejected: readonly (readonly [line: string, message: string, hint?: string])[] = [
  ["down other", 'unexpected argument "other"', "To select a lab, use --name other"],
  ["heal foo", 'unexpected argument "foo"', "To select a lab, use --name foo"],
  ["up --output json", "unknown flag --output"],
  ["down --nodes 3", "unknown flag --nodes"],
  ["status -f x", "unknown flag -f"],
  ["up --nodes", "--nodes needs a value"],
  ["up --nodes -3", "--nodes needs a value", "A value that begins with a dash is written --nodes=-3"],
  ["up --nodes 0", "--nodes 0: want a number from 1 to 100"],
  ["up --nodes x", "--nodes x: want a number from 1 to 100"],
  ["up --nodes 101", "--nodes 101: want a number from 1 to 100"],
  ["up --pods 201", "--pods 201: want a number from 0 to 200"],
  ["up --topology ring", "--topology ring: want switch, racks, reflectors or dual-nic"],
  ["matrix --port 0", "--port 0: want a number from 1 to 65535"],
  ["exec pod1 ls", 'unexpected argument "ls"', "Write -- before ls, so that it is not parsed here."],
  ["exec pod1", "COMMAND is missing"],
  ["set node1", "NAME=VALUE is missing"],
  ["apply", "--filename is missing"],
  ["break link node1 eth0 eth1", 'unexpected argument "eth1"'],
  ["break linx node1", 'unknown command "linx"', "Did you mean link?"],
  ["matrix -- x", 'unexpected argument "x"', "To select a lab, use --name x"],
  ["upp", 'unknown command "upp"', "Did you mean up?"],
  ["ls", 'unknown command "ls"'],
  ["shell", 'unknown command "shell"'],
  ["ssh", 'unknown command "ssh"'],
];
for (const [line, message, hint] of rejected)
  test(`${line} is rejected`, () => {
    const result = parsed(line);
    if (result.type !== "error") throw new Error(result.type);
    expect({ message: result.error.message, hint: result.error.hint }).toEqual({ message, hint });
  });

for (const line of ["up --help", "break -h", "down -h", "help", "help break", "break link node1 -h"])
  test(`${line} requests help`, () => expect(parsed(line).type).toBe("help"));
