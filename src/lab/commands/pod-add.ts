// Implements `calico lab pod add`.
import { isLabelValue, isQualifiedName } from "../../model/index.ts";
import { Lab } from "../lab.ts";
import { lockExisting } from "../lock.ts";
import { InvalidRequest } from "../options.ts";
import { labelText, parsePodName, podTitle } from "../pods.ts";
import type { LabCall, podAddGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { addPods } from "../up.ts";
import { printResult, requestedLab } from "./requested-lab.ts";

export async function run({ flags, args }: LabCall<typeof podAddGrammar>): Promise<number> {
  const name = requestedLab(flags);
  using _ = await lockExisting(name);
  const lab = Lab.open(name);
  const requested = {
    ...parsePodName(args.POD),
    node: flags.node ?? leastLoaded(lab),
    labels: parseLabels(flags.labels ?? ""),
  };
  lab.host(requested.node);
  addPods(lab, [requested]);
  const added = lab.pod(`${requested.namespace}/${requested.name}`);
  if (flags.node !== undefined && added.node !== flags.node)
    throw new InvalidRequest(
      `pod ${podTitle(added)} already exists on ${added.node}; delete it first with calico lab pod del`,
    );
  const differs = Object.entries(requested.labels).some(([key, value]) => added.labels[key] !== value);
  if (differs)
    throw new InvalidRequest(
      `pod ${podTitle(added)} already exists with labels ${labelText(added.labels) || "none"}; delete it first with calico lab pod del`,
    );
  const line = () => `pod ${podTitle(added)} on ${added.node}: ${added.addresses.join(", ")}`;
  printResult(openTerminal(), flags, added, line);
  return 0;
}

function leastLoaded(lab: Lab): string {
  const { pods } = lab;
  const load = (node: string) => pods.filter((p) => p.node === node).length;
  const [least] = lab.plan.nodes.map(({ name }) => name).sort((a, b) => load(a) - load(b));
  if (least === undefined) throw new InvalidRequest("the lab has no nodes");
  return least;
}

function parseLabels(text: string): Record<string, string> {
  if (text === "") return {};
  return Object.fromEntries(
    text.split(",").map((pair) => {
      const [key, value, more] = pair.split("=");
      if (key === undefined || value === undefined || more !== undefined)
        throw new InvalidRequest(`--labels ${text}: want key=value,key=value`);
      if (!isQualifiedName(key))
        throw new InvalidRequest(`--labels ${text}: ${JSON.stringify(key)} is not the name of a label`);
      if (!isLabelValue(value))
        throw new InvalidRequest(`--labels ${text}: ${JSON.stringify(value)} is not the value of a label`);
      return [key, value];
    }),
  );
}
