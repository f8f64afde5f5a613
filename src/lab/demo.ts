// A small shop on the lab: frontend talks to backend, backend to database, nobody else to anybody. Shows who reaches
// whom before and after the policy, and why one connection no longer works.
import { spawnSync } from "node:child_process";
import { API_VERSION, type Resource } from "../model/index.ts";
import { baseEnvironment } from "./host.ts";
import type { Lab } from "./lab.ts";
import { measureMatrix, renderMatrix } from "./matrix.ts";
import { datastoreEnvironment, rolePath } from "./programs.ts";
import { paint, type Terminal } from "./terminal.ts";
import { addPods } from "./up.ts";

const NAMESPACE = "shop";
const APPS = ["frontend", "backend", "database"] as const;
const SETTLE_MS = 5000;

const policy = (app: string, from: string | undefined): Resource => ({
  apiVersion: API_VERSION,
  kind: "NetworkPolicy",
  metadata: { name: app, namespace: NAMESPACE },
  spec: {
    selector: `app == '${app}'`,
    types: ["Ingress"],
    ingress:
      from === undefined
        ? []
        : [
            {
              action: "Allow",
              protocol: "TCP",
              source: { selector: `app == '${from}'` },
              destination: { ports: [80] },
            },
          ],
  },
});

const POLICIES: readonly Resource[] = [
  policy("frontend", undefined),
  policy("backend", "frontend"),
  policy("database", "backend"),
];

export async function demonstrate(lab: Lab, terminal: Terminal): Promise<void> {
  const nodes = lab.plan.nodes.map(({ name }) => name);
  await terminal.step("a shop: frontend, backend, database", async () => {
    // Shown before, the policy would still be there.
    lab.calicoctl(["delete", "--skip-not-exists", "-f", "-"], JSON.stringify(POLICIES));
    addPods(
      lab,
      APPS.map((app, i) => ({
        namespace: NAMESPACE,
        name: app,
        node: nodes[i % nodes.length] ?? "node1",
        labels: { app },
      })),
    );
  });
  const title = (text: string) => terminal.line(`\n${paint(terminal.colour, "bold", text)}`);
  title("without policy everybody reaches everybody:");
  terminal.line(await matrixWhen(lab, terminal.colour, 9));

  terminal.line();
  await terminal.step("policy: frontend → backend → database on port 80, nothing else", () => lab.apply(POLICIES));
  title("with the policy:");
  terminal.line(await matrixWhen(lab, terminal.colour, 5));

  title("why does the frontend not reach the database?");
  const [first] = lab.plan.nodes;
  if (first === undefined) return;
  const explain = ["explain", `${NAMESPACE}/frontend`, `${NAMESPACE}/database`, "--protocol", "tcp", "--port", "80"];
  const command = [rolePath("calicoctl"), ...explain];
  const environment = datastoreEnvironment(lab.options, lab.plan);
  if (terminal.colour) {
    const [file, ...args] = lab.host(first.name).enter(command); // it paints for whom it sees
    spawnSync(file, args, { stdio: "inherit", env: { ...baseEnvironment(), ...environment } });
    return;
  }
  const answer = lab.host(first.name).run(command, { environment });
  terminal.line((answer.stdout || answer.stderr).trimEnd());
}

/** The shop's matrix once that many connections work, or as it is when they never do. */
async function matrixWhen(lab: Lab, colour: boolean, connections: number): Promise<string> {
  const deadline = performance.now() + SETTLE_MS;
  for (;;) {
    const cells = await measureMatrix(lab, {
      protocol: "tcp",
      port: 80,
      version: 4,
      timeoutMs: 400,
      namespace: NAMESPACE,
    });
    const reached = cells.filter((cell) => cell.result === "reached").length;
    if (reached === connections || performance.now() > deadline) return renderMatrix(cells, colour);
  }
}
