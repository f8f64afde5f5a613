// Runs attacks concurrently for a given time, and monitors traffic that must pass and traffic that must be dropped.
import { join } from "node:path";
import { PacketProber } from "../../src/kernel/index.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { type IpAddress, parseAddress } from "../../src/lib/ip/ip.ts";
import { type Pair, type Violation, Watch } from "../chaos/watch.ts";
import { Pings } from "../functional/lab/pings.ts";
import { addressOf, DATABASE_PORT, inFabric, NEIGHBOUR, nodeAddress, openScene, TENANT } from "./scene.ts";
import { ATTACKS, type Attempt, type WorkerOptions } from "./worker.ts";

export interface Report {
  /** Number of attempts by attack and outcome. */
  readonly counts: ReadonlyMap<string, Readonly<Record<Attempt["outcome"], number>>>;
  /** Counts of reasons, by attack, outcome and reason. */
  readonly reasons: ReadonlyMap<string, number>;
  readonly successes: readonly string[];
  /** Changes of the neighbour or of a node, denied packets that passed, allowed ones that were lost, failed workers. */
  readonly problems: readonly string[];
  readonly watched: { readonly pings: number; readonly looks: number };
}

const WORKERS = 3;
const SETTLED_MS = 60_000;
/** Time for each worker to complete its last attack, and for the observer to stop. */
const LAST_ATTACK_MS = 60_000;

/** Runs the given attacks once in one process, and returns their results. */
export async function tryAttacks(lab: Lab, only: readonly string[], seed = 1): Promise<readonly Attempt[]> {
  return collect(lab, { worker: 0, seed, seconds: 60, only }, (problem) => {
    throw new Error(problem);
  });
}

export async function attack(lab: Lab, options: { readonly seed: number; readonly seconds: number }): Promise<Report> {
  const { pods } = openScene(lab);
  using open = lab.openPods(pods);
  using prober = new PacketProber();
  const nodes = lab.plan.nodes.map(({ name }) => name);
  for (const target of open.targets.values())
    for (const port of [DATABASE_PORT, 81]) prober.listen(target, "tcp", port);
  await using watch = new Watch(prober, pairsOf(lab, pods, open.targets));
  await watch.waitUntilCorrect("before the first attack", SETTLED_MS);
  const isClient = ({ namespace, labels }: LabPod) => namespace === NEIGHBOUR && labels["role"] === "client";
  await using pings = new Pings(lab, { from: pods.filter(isClient), to: databaseOf(pods) });
  await pings.more(20);
  const problems: string[] = [];
  await using observer = await Observer.start(lab);
  watch.take();

  const began = performance.now();
  const results = await Promise.all(
    Array.from({ length: WORKERS }, (_, worker) =>
      collect(lab, { worker, ...options }, (problem) => problems.push(problem)).catch((error: unknown) => {
        problems.push(`worker ${worker}: ${error instanceof Error ? error.message : error}`);
        return [] as readonly Attempt[];
      }),
    ),
  );
  await watch.waitUntilCorrect("after the last attack", SETTLED_MS);
  await pings.more(20);
  const seen = watch.take();
  const shown = ({ at, pair: { from, to, request } }: Violation) =>
    `${from.name} to ${to.name} ${request.to} port ${request.port}, ${Math.round(at - began)} ms after the start`;
  const attempts = results.flat();
  return {
    counts: countsOf(attempts),
    reasons: reasonsOf(attempts),
    successes: attempts
      .filter(({ outcome }) => outcome === "SUCCEEDED")
      .map(({ attack: name, detail }) => `${name}: ${detail}`),
    problems: [
      ...problems,
      ...seen.leaks.map((leak) => `a denied connection passed: ${shown(leak)}`),
      ...seen.losses.map((loss) => `an allowed connection failed: ${shown(loss)}`),
      ...Object.entries(pings.lost()).map(([name, numbers]) => `${numbers.length} pings were lost: ${name}`),
      ...observer.problems,
      ...nodes
        .filter((node) => lab.host(node).program("calico-node") === undefined)
        .map((node) => `${node} has no agent`),
    ],
    watched: { pings: pings.least, looks: observer.looks },
  };
}

/** Clients reach the database and its service. The tenant reaches no pod of the neighbour and no port of its node. */
function pairsOf(lab: Lab, pods: readonly LabPod[], targets: ReadonlyMap<LabPod, Pair["request"]["from"]>): Pair[] {
  const database = databaseOf(pods);
  const pair = (from: LabPod, to: LabPod, address: IpAddress | undefined, port: number, isAllowed: boolean): Pair[] => {
    const source = targets.get(from);
    if (source === undefined || address === undefined) return [];
    return [{ from, to, isAllowed, request: { from: source, to: address, protocol: "tcp", port } }];
  };
  const service = parseAddress(openScene(lab).service);
  const attackers = pods.filter(({ name }) => name.startsWith("mallory"));
  const neighbours = pods.filter(({ namespace }) => namespace === NEIGHBOUR);
  return pods.flatMap((from) =>
    from.namespace === TENANT
      ? [4, 6].flatMap((each) => {
          const version = each === 4 ? 4 : 6;
          const node: LabPod = { ...from, namespace: "", name: from.node };
          return [
            ...neighbours.flatMap((to) => pair(from, to, addressOf(to, version), DATABASE_PORT, false)),
            ...pair(from, database, version === 4 ? service : undefined, DATABASE_PORT, false),
            ...[9099, 179].flatMap((port) => pair(from, node, nodeAddress(lab, from.node, version), port, false)),
            // Checks that the tenant's pods can send; otherwise their attacks would prove nothing.
            ...attackers
              .filter((to) => to !== from && from.name.startsWith("mallory"))
              .flatMap((to) => pair(from, to, addressOf(to, version), 81, true)),
          ];
        })
      : from === database
        ? neighbours.filter((to) => to !== from).flatMap((to) => pair(from, to, addressOf(to, 4), DATABASE_PORT, false))
        : [
            ...pair(from, database, addressOf(database, 4), DATABASE_PORT, true),
            ...pair(from, database, addressOf(database, 6), DATABASE_PORT, true),
            ...pair(from, database, service, DATABASE_PORT, true),
            ...pair(from, database, addressOf(database, 4), 81, false),
          ],
  );
}

function databaseOf(pods: readonly LabPod[]): LabPod {
  const found = pods.find(({ namespace, name }) => namespace === NEIGHBOUR && name === "db");
  if (found === undefined) throw new Error("the lab has no database");
  return found;
}

async function collect(
  lab: Lab,
  options: WorkerOptions,
  onProblem: (problem: string) => void,
): Promise<readonly Attempt[]> {
  const command = [process.execPath, join(import.meta.dir, "worker.ts"), JSON.stringify(options)];
  const child = Bun.spawn(inFabric(lab, command), { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  const timer = setTimeout(() => child.kill("SIGKILL"), options.seconds * 1_000 + LAST_ATTACK_MS);
  const [text, errors, code] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
    child.exited,
  ]);
  clearTimeout(timer);
  if (code !== 0) onProblem(`worker ${options.worker} ended with ${code}: ${errors.trim().slice(0, 2_000)}`);
  return linesOf(text) as Attempt[];
}

const linesOf = (text: string): unknown[] =>
  text
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as unknown);

class Observer implements AsyncDisposable {
  readonly #changed = new Map<string, number>();
  looks = 0;
  #end = "";
  private constructor(readonly child: Bun.Subprocess<"ignore", "pipe", "pipe">) {
    child.exited.then((code) => (this.#end = `the observer ended with ${code}`)).catch(() => {});
  }

  static async start(lab: Lab): Promise<Observer> {
    const command = [process.execPath, join(import.meta.dir, "observer.ts")];
    const child = Bun.spawn(inFabric(lab, command), { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
    const observer = new Observer(child);
    const ready = Promise.withResolvers<void>();
    void observer.#read(() => ready.resolve());
    await Promise.race([ready.promise, child.exited]);
    if (child.exitCode !== null) throw new Error(`the observer failed: ${await new Response(child.stderr).text()}`);
    return observer;
  }

  get problems(): readonly string[] {
    return [
      ...[...this.#changed].map(([what, times]) => `${what} (seen ${times} times)`),
      ...(this.#end === "" ? [] : [this.#end]),
    ];
  }

  async #read(onReady: () => void): Promise<void> {
    let rest = "";
    const decoder = new TextDecoder();
    for await (const chunk of this.child.stdout) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const { ready, looked, changed = [] } = JSON.parse(line) as { ready?: true; looked?: true; changed?: string[] };
        if (ready === true) onReady();
        if (looked === true) this.looks++;
        for (const what of changed) this.#changed.set(what, (this.#changed.get(what) ?? 0) + 1);
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill("SIGKILL");
    await this.child.exited;
  }
}

function countsOf(attempts: readonly Attempt[]): Report["counts"] {
  const counts = new Map(ATTACKS.map(({ name }) => [name, { refused: 0, ineffective: 0, SUCCEEDED: 0, skipped: 0 }]));
  for (const { attack: name, outcome } of attempts) {
    const of = counts.get(name);
    if (of !== undefined) of[outcome]++;
  }
  return counts;
}

function reasonsOf(attempts: readonly Attempt[]): ReadonlyMap<string, number> {
  const reasons = new Map<string, number>();
  for (const { attack: name, outcome, detail } of attempts) {
    if (detail === undefined || outcome === "SUCCEEDED") continue;
    const reason = `${name}: ${outcome}, ${detail}`;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  return reasons;
}

/** Returns a table of the counts, followed by the problems. */
export function renderReport({ counts, reasons, successes, problems, watched }: Report): string {
  const row = (...cells: readonly (string | number)[]) =>
    cells.map((cell, i) => (i === 0 ? String(cell).padEnd(66) : String(cell).padStart(12))).join("");
  const lines = [...counts].map(([name, { refused, ineffective, SUCCEEDED }]) =>
    row(name, refused + ineffective + SUCCEEDED, refused, ineffective, SUCCEEDED),
  );
  const sum = (of: (each: Readonly<Record<Attempt["outcome"], number>>) => number) =>
    [...counts.values()].reduce((total, each) => total + of(each), 0);
  return [
    row("attack", "tried", "refused", "ineffective", "SUCCEEDED"),
    ...lines,
    row(
      "all",
      sum(({ refused, ineffective, SUCCEEDED }) => refused + ineffective + SUCCEEDED),
      sum(({ refused }) => refused),
      sum(({ ineffective }) => ineffective),
      sum(({ SUCCEEDED }) => SUCCEEDED),
    ),
    ...[...reasons].sort().map(([reason, times]) => `  ${times} × ${reason}`),
    `watched: ${watched.pings} pings per client, state of the neighbour and the nodes ${watched.looks} times`,
    ...[...successes, ...problems].slice(0, 50).map((line) => `WRONG: ${line}`),
    successes.length + problems.length === 0 ? "nothing of others opened, stopped or moved" : "FAILED",
  ].join("\n");
}
