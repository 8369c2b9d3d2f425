// A client made with oauth4webapi, which has a function for each step. See conversation.mjs.
import * as oauth from "../npm/node_modules/oauth4webapi/build/index.js";
import { converse } from "./conversation.mjs";

const WITHOUT_TLS = { [oauth.allowInsecureRequests]: true };
const AUTHENTICATIONS = {
  client_secret_basic: oauth.ClientSecretBasic,
  client_secret_post: oauth.ClientSecretPost,
  none: oauth.None,
};

await converse(async ({ issuer, client_id, client_secret, method, redirect_uri, scope }) => {
  const identifier = new URL(issuer);
  const found = await oauth.discoveryRequest(identifier, { algorithm: "oauth2", ...WITHOUT_TLS });
  const server = await oauth.processDiscoveryResponse(identifier, found);
  const client = { client_id };
  const authentication = AUTHENTICATIONS[method](client_secret);
  let state, verifier;

  return {
    async begin() {
      state = oauth.generateRandomState();
      verifier = oauth.generateRandomCodeVerifier();
      const address = new URL(server.authorization_endpoint);
      address.search = new URLSearchParams({
        response_type: "code",
        client_id,
        redirect_uri,
        scope,
        state,
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
        code_challenge_method: "S256",
      });
      return address.href;
    },
    async finish({ redirect }) {
      const answer = oauth.validateAuthResponse(server, client, new URL(redirect), state);
      const request = [server, client, authentication, answer, redirect_uri, verifier, WITHOUT_TLS];
      const response = await oauth.authorizationCodeGrantRequest(...request);
      return await oauth.processAuthorizationCodeResponse(server, client, response);
    },
    async refresh({ token }) {
      const response = await oauth.refreshTokenGrantRequest(server, client, authentication, token, WITHOUT_TLS);
      return await oauth.processRefreshTokenResponse(server, client, response);
    },
    async revoke({ token }) {
      const response = await oauth.revocationRequest(server, client, authentication, token, WITHOUT_TLS);
      await oauth.processRevocationResponse(response);
    },
  };
});
