// Demonstrates policy with a small application: frontend connects to backend, and backend to database. Shows which pods can
// connect before and after the policy is applied, and explains one denied connection.
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
const POLICY_WITHIN_MS = 5000;

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
  await terminal.step("example pods: frontend, backend, database", async () => {
    // left by an earlier demo
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
  title("without a policy, all pods can connect to each other:");
  terminal.line(await matrixAfter(lab, terminal.colour, 9));

  terminal.line();
  await terminal.step("policy: only frontend → backend → database, on port 80", () => lab.apply(POLICIES));
  title("with the policy:");
  terminal.line(await matrixAfter(lab, terminal.colour, 5));

  title("why can the frontend not connect to the database?");
  const [first] = lab.plan.nodes;
  if (first === undefined) return;
  const explain = ["explain", `${NAMESPACE}/frontend`, `${NAMESPACE}/database`, "--protocol", "tcp", "--port", "80"];
  const command = [rolePath("calicoctl"), ...explain];
  const environment = datastoreEnvironment(lab.options, lab.plan);
  if (terminal.colour) {
    const [file, ...args] = lab.host(first.name).enter(command); // calicoctl uses colours only on a terminal
    spawnSync(file, args, { stdio: "inherit", env: { ...baseEnvironment(), ...environment } });
    return;
  }
  const result = lab.host(first.name).run(command, { environment });
  terminal.line((result.stdout || result.stderr).trimEnd());
}

/** Measures until the expected number of connections works, or `POLICY_WITHIN_MS` have passed. */
async function matrixAfter(lab: Lab, colour: boolean, connections: number): Promise<string> {
  const deadline = performance.now() + POLICY_WITHIN_MS;
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
