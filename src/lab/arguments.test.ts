import { expect, test } from "bun:test";
import { parseArguments } from "./arguments.ts";
import { UsageError } from "./options.ts";

const split = (line: string): [string, string[]] => {
  const [command = "", ...words] = line.split(" ");
  return [command, words];
};

const read = [
  { line: "break process node1 -felix", words: ["process", "node1", "-felix"] },
  { line: "break process node1 -felix --name two", words: ["process", "node1", "-felix"], options: { name: "two" } },
  { line: "break --name=two process node1 -- -confd", words: ["process", "node1", "-confd"], options: { name: "two" } },
  { line: "apply -f policy.yaml", words: [], options: { filename: "policy.yaml" } },
  { line: "up --nodes 2 --ipv6", words: [], options: { nodes: "2", ipv6: true } },
  { line: "exec pod1 -- ls -f", words: ["pod1"], inner: ["ls", "-f"] },
];
for (const { line, words, options = {}, inner } of read)
  test(`${line} is read`, () => {
    const got = parseArguments(...split(line));
    expect({ ...got.options }).toEqual(options);
    expect(got.words).toEqual(words);
    if (inner !== undefined) expect(got.inner).toEqual(inner);
  });

const refused = [
  { line: "down other", says: "--name other" },
  { line: "up --output json", says: "has no option --output" },
  { line: "down --nodes 3", says: "has no option --nodes" },
  { line: "status -f x", says: "has no option -f" },
  { line: "up --nodes", says: "argument missing" },
  { line: "up --nodes -3", says: "ambiguous" },
  { line: "exec pod1 ls", says: "put -- before ls" },
  { line: "break link node1 eth0 eth1", says: "eth1" },
  { line: "matrix -- x", says: "behind --" },
  { line: "upp", says: "did you mean up?" },
];
for (const { line, says } of refused)
  test(`${line} is refused in one line`, () => {
    try {
      parseArguments(...split(line));
    } catch (error) {
      expect(error).toBeInstanceOf(UsageError);
      expect((error as Error).message).toContain(says);
      expect((error as Error).message).not.toContain("\n");
      return;
    }
    throw new Error("not refused");
  });

for (const line of ["up --help", "break -h", "down -h"])
  test(`${line} asks for help`, () => expect(parseArguments(...split(line)).wantsHelp).toBe(true));
