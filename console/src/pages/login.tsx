/** Logging in: by a token, or at an issuer. */
import { type Config, logIn, ownService } from "../login";
import { startLogin } from "../oidc";
import { Card, ErrorNote } from "../parts/basics";
import { Act, Form, field, TOKEN, tick, type Values } from "../parts/form";

const WHERE = "Its address, without /v1";

export function Login(props: { config: Config; problem: Error | null }) {
  const { config } = props;
  const own = ownService(config);
  // Files that are hosted elsewhere have no config.json of a service.
  const elsewhere = config.version === undefined;
  const submit = async ({ token = "", keep, service = own }: Values) => {
    await logIn(service.replace(/\/$/, ""), token.trim(), { kept: keep === "on" });
  };
  return (
    <main class="login">
      <h1>
        <Logo /> ARGO Messaging
      </h1>
      {props.problem && <ErrorNote error={props.problem} />}
      {config.issuers.length > 0 && (
        <Card>
          {config.issuers.map((issuer) => (
            <Act key={issuer.name} label={`Log in with ${issuer.name}`} primary act={() => startLogin(issuer, own)} />
          ))}
        </Card>
      )}
      <Card>
        <Form
          button="Log in"
          onSubmit={submit}
          fields={[
            TOKEN,
            elsewhere && field("service", "Service", { type: "url", value: own, required: true, hint: WHERE }),
            tick("keep", "Keep it in this browser until I log out"),
          ]}
        />
      </Card>
      <p class="quiet">
        No token at hand? <code>ams open</code> opens this page with a new one that lasts eight hours. The
        administrator's token of a new service is in <code>admin.token</code> of its data folder.
      </p>
    </main>
  );
}

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 24 24" width="24" height="24" aria-hidden="true">
      <path d="M3 17 L9 7 L13 13 L16 9 L21 17 Z" />
    </svg>
  );
}
