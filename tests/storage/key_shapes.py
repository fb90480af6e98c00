"""Shapes that keys have in texts and variables, with made-up values: TEXTS and VARIABLES.

A value is drawn for the shape's name, so that no file holds one, and nobody's scanner finds one.
"""

from __future__ import annotations

import base64
import random
import string

_LETTERS = {
    "w": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
    "U": string.ascii_uppercase + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "d": string.digits,
}

PREFIXES = {
    "Groq": "gsk_ w52",
    "xAI": "xai- w80",
    "Replicate": "r8_ w37",
    "Together": "tgp_v1_ u43",
    "Fireworks": "fw_ w22",
    "NVIDIA": "nvapi- u64",
    "LangSmith": "lsv2_pt_ h32 _ h10",
    "LangSmith, service": "lsv2_sk_ h32 _ h10",
    "Pinecone": "pcsk_ w6 _ w63",
    "Tavily": "tvly- w32",
    "Tavily, dev": "tvly-dev- w32",
    "Cerebras": "csk- l48",
    "Bedrock": "ABSK b128 ==",
    "Hugging Face": "hf_ w34",
    "OpenAI, project": "sk-proj- u74 T3BlbkFJ u74",
    "OpenAI, old": "sk- w48",
    "OpenRouter": "sk-or-v1- h64",
    "Anthropic": "sk-ant-api03- u93 AA",
    "Anthropic, OAuth": "sk-ant-oat01- u86",
    "Google": "AIza u35",
    "Google, new": "AQ. u50",
    "Google, access": "ya29. u120",
    "Google, client secret": "GOCSPX- u28",
    "GitHub": "ghp_ w36",
    "GitHub, OAuth": "gho_ w36",
    "GitHub, fine-grained": "github_pat_ w22 _ w59",
    "GitLab": "glpat- u20",
    "Slack bot": "xoxb- d12 - d12 - w24",
    "Slack app": "xapp-1- U11 - d13 - h64",
    "Slack webhook": "https://hooks.slack.com/services/T U9 /B U9 / w24",
    "Discord webhook": "https://discord.com/api/webhooks/ d18 / u68",
    "Discord bot": "MT w22 . u6 . u38",
    "Telegram bot": "d10 :AA u33",
    "AWS id": "AKIA U16",
    "npm": "npm_ w36",
    "PyPI": "pypi-AgEIcHlwaS5vcmc u120",
    "DigitalOcean": "dop_v1_ h64",
    "SendGrid": "SG. u22 . u43",
    "Stripe": "sk_live_ w24",
    "Stripe webhook": "whsec_ w32",
    "Perplexity": "pplx- w48",
    "Jina": "jina_ h32 w24",
    "Voyage": "pa- u43",
    "E2B": "e2b_ h40",
    "Firecrawl": "fc- h32",
    "RunPod": "rpa_ U40 l6",
    "Docker Hub": "dckr_pat_ u27",
    "Figma": "figd_ u40",
    "Notion": "ntn_ d11 w35",
    "Supabase": "sbp_ h40",
    "Resend": "re_ w8 _ w24",
    "ElevenLabs": "sk_ h48",
    "Llama Cloud": "llx- w48",
    "Langfuse": "sk-lf- h8 - h4 - h4 - h4 - h12",
    "Logfire": "pylf_v1_us_ w43",
    "PostHog": "phx_ w43",
    "Databricks": "dapi h32",
    "Atlassian": "ATATT3xFfGF0 u170 = U8",
    "Doppler": "dp.pt. w43",
    "Tailscale": "tskey-auth- w16 - w32",
    "Apify": "apify_api_ w36",
    "Vercel": "vercel_blob_rw_ w16 _ w32",
    "Netlify": "nfp_ w36",
    "Linear": "lin_api_ w40",
    "age": "AGE-SECRET-KEY-1 U58",
    "Weights & Biases": "wandb_v1_ u60",
    "JSON web token": "eyJ w30 .eyJ w60 . u43",
}
"""Name -> pieces: a letter of _LETTERS and a count is drawn, the rest stands as it is."""

CONTEXTS = {
    "YAML": ("database:\n  password: {}\n  port: 5432\n", "Tr0ub4dor&3"),
    "YAML, quoted": ("  db_password: '{}'\n", "zebra-Quilt-77"),
    "YAML, short": ("redis:\n  pass: {}\n", "h0rse9Batt"),
    "YAML, token": ("github:\n  token: {}\n", "w32"),
    "YAML, secret": ("client_secret: {}\n", "u32"),
    "YAML, camel": ("  apiKey: {}\n", "h32"),
    "JSON": ('{{"user": "app", "password": "{}"}}', "Tr0ub4dor&3"),
    "JSON, compact": ('{{"accessToken":"{}","ttl":5}}', "w40"),
    "JSON, key": ('{{\n  "api_key": "{}"\n}}', "h32"),
    "JSON, private": ('{{"private_key_id": "{}"}}', "h40"),
    "JSON in JSON": ('{{"arguments": "{{\\"password\\": \\"{}\\"}}"}}', "9Lantern_moss"),
    "INI": ("[db]\nuser = app\npassword = {}\n", "k1tchen;Sink"),
    "INI, token": ("[api]\nauth_token = {}\n", "h40"),
    "TOML": ('[registry]\ntoken = "{}"\n', "w36"),
    "properties": ("spring.datasource.password={}\n", "P4per!Boat"),
    "call": ('psycopg2.connect(host="db", user="app", password="{}")', "plum7Orchard"),
    "call, api_key": ('client = Client(api_key="{}")', "w40"),
    "call, positional login": (
        'session.auth = ("admin", "x"); login(passwd=\'{}\')',
        "v1olet-Crane",
    ),
    "assignment in Python": ('SECRET_KEY = "{}"', "u50"),
    "assignment, lower": ("access_token = '{}'", "w40"),
    "JavaScript": ("const apiKey = '{}';", "w39"),
    "Java": ('props.setProperty("password", "{}");', "m4rble.Staircase"),
    "Terraform": ('  master_password = "{}"\n', "Gr4nite#Fox"),
    "dict": ("conf = {{'password': '{}', 'db': 0}}", "tul1p-Harbor"),
    "XML": ("<password>{}</password>", "c0balt-River9"),
    "XML, attribute": ('<add key="x" password="{}" />', "c0balt-River8"),
    "command line": ("mysql -u root --password={} shop", "saffr0n_Kite"),
    "command line, spaced": ("docker login -u me --password {} ghcr.io", "w20"),
    "command line, token": ("vault login --token {}", "w26"),
    "curl -u": ("curl -u admin:{} https://h.example.net/", "Br1ckOven"),
    "sshpass": ("sshpass -p '{}' ssh root@h", "w12"),
    "mysql -p": ("mysql -uroot -p{} shop", "J0lly.Rogers4"),
    "PGPASSWORD": ("PGPASSWORD={} psql -h db", "winter7Garden"),
    "export": ("export OPENAIKEY={}\n", "w40"),
    "Dockerfile": ("ENV DB_PASSWORD={}\n", "s1lent-Meadow"),
    "compose": ("    environment:\n      - POSTGRES_PASSWORD={}\n", "am8er.Lamp"),
    "netrc": ("machine api.example.net\n  login me\n  password {}\n", "w20"),
    "netrc, one line": ("machine h login me password {}", "fr0sty-Window"),
    "pgpass": ("db.example.net:5432:shop:app:{}\n", "cr1mson_Tide"),
    "docker auth": (
        '{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}',
        base64.b64encode(b"me:f1ne-Sand").decode(),
    ),
    "identity token": ('{{"auths": {{"r": {{"identitytoken": "{}"}}}}}}', "u64"),
    "Cookie": ("Cookie: theme=dark; sessionid={}", "l32"),
    "Set-Cookie": ("Set-Cookie: session={}; Path=/; HttpOnly", "u43"),
    "cookie in a program": ("requests.get(u, cookies={{'sessionid': '{}'}})", "l32"),
    "Authorization: Bearer": ("Authorization: Bearer {}", "w40"),
    "Authorization: token": ("-H 'Authorization: token {}'", "h40"),
    "Authorization in JSON": ('{{"Authorization": "Bearer {}"}}', "w40"),
    "X-Api-Key": ("x-api-key: {}", "w32"),
    "X-Auth-Token": ('{{"X-Auth-Token": "{}"}}', "w32"),
    "X-Vault-Token": ("X-Vault-Token: {}", "w26"),
    "key in an address": ("https://api.example.net/v1?key={}", "w32"),
    "token in an address": ("https://api.example.net/cb#access_token={}&state=1", "w32"),
    "token as a user": ("git clone https://{}@git.example.net/a/b.git", "w40"),
    "oauth2 in an address": ("https://oauth2:{}@git.example.net/a.git", "w26"),
    "DSN": ("postgres://shop:{}@db.example.net/shop", "Bl4ck.Tulip"),
    "DSN without a user": ("redis://:{}@cache:6379/0", "f4lcon"),
    "DSN of SQLAlchemy": ("postgresql+psycopg2://shop:{}@db/shop", "m0ssyStone"),
    "DSN of words": ("host=db user=shop password={} dbname=shop", "qu1etHarbor"),
    "ODBC": ("Server=db;Database=shop;User Id=sa;Password={};", "N0rth-Wind!"),
    "JDBC": ("jdbc:mysql://db/shop?user=app&password={}", "p1neForest"),
    "Sentry": ("https://{}@o12.ingest.sentry.io/34", "h32"),
    "Azure storage": ("AccountName=x;AccountKey={};EndpointSuffix=core", "b86 =="),
    "Azure SAS": ("https://x.blob.core.windows.net/c?sv=2024&sig={}", "w40 %3D"),
    "AWS secret": ("aws_secret_access_key = {}", "b40"),
    "AWS session": ("aws_session_token={}", "b200"),
    "npmrc": ("//registry.example.net/:_authToken={}", "h8 - h4 - h4 - h4 - h12"),
    "pypirc": ("[pypi]\nusername = me\npassword = {}\n", "ambl1ng-Otter"),
    "Kubernetes": ("data:\n  password: {}\n", base64.b64encode(b"w1lted-Rose!").decode()),
    "PEM": ("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "b64 \n b64"),
    "prose": ("The password is {} as of Monday.", "w16"),
    "prose, key": ("my api key is {}, keep it", "w32"),
    "htpasswd": ("admin:{}", "$apr1$ w8 $ w22"),
    "shadow": ("root:{}:19000:0:99999:7:::", "$6$ w16 $ w86"),
    "WiFi": ("wpa_passphrase={}\n", "gr4vel-Path"),
    "Rails": ("secret_key_base: {}\n", "h128"),
    "Firebase": ('"apiKey": "{}"', "AIza u35"),
    "Azure OpenAI": ("AZURE_OPENAI_KEY: {}", "h32"),
}
"""Name -> a text, and the value in its place: pieces as in PREFIXES."""

NAMES = {
    "PGPASSWORD": ("{}", "w14"),
    "OPENAIKEY": ("{}", "w40"),
    "MYSQL_PWD": ("{}", "w14"),
    "MYSQLPASSWORD": ("{}", "w14"),
    "SESSION_COOKIE": ("{}", "w32"),
    "AUTH_COOKIE": ("sid={}; Path=/", "w32"),
    "COOKIE": ("{}", "w32"),
    "SENTRY_DSN": ("https://{}@o1.ingest.example.net/2", "h32"),
    "DATABASE_URL": ("postgres://u:{}@h/d", "w14"),
    "REDIS_URL": ("redis://:{}@h:6379/0", "w14"),
    "CELERY_BROKER": ("amqp://u:{}@h//", "w14"),
    "MONGO": ("mongodb+srv://u:{}@h/d?retryWrites=true", "w14"),
    "ODBC": ("Driver=x;Server=db;UID=sa;PWD={};", "w14"),
    "OPENAI_API_KEY": ("{}", "w40"),
    "HUGGINGFACEHUB_API_TOKEN": ("{}", "w34"),
    "GITHUBTOKEN": ("{}", "w40"),
    "GH_PAT": ("{}", "w40"),
    "AWS_SECRET_ACCESS_KEY": ("{}", "b40"),
    "AWS_SESSION_TOKEN": ("{}", "b120"),
    "AZURE_CLIENT_SECRET": ("{}", "u34"),
    "CLIENTSECRET": ("{}", "u34"),
    "apiKey": ("{}", "w32"),
    "ACCESSTOKEN": ("{}", "w32"),
    "DBPASS": ("{}", "w14"),
    "DB_PASSWD": ("{}", "w14"),
    "SMTPPASS": ("{}", "w14"),
    "RESTIC_PASSWORD": ("{}", "w14"),
    "BORG_PASSPHRASE": ("{}", "w20"),
    "ENCRYPTION_KEY": ("{}", "h64"),
    "JWT_SECRET": ("{}", "w48"),
    "SIGNING_SALT": ("{}", "w24"),
    "SLACK_WEBHOOK_URL": ("https://hooks.example.net/services/T1/B2/{}", "w24"),
    "NPM_AUTH": ("{}", "w40"),
    "BASIC_AUTH": ("admin:{}", "w14"),
    "DOCKER_AUTH_CONFIG": ('{{"auths":{{"r":{{"identitytoken":"{}"}}}}}}', "w64"),
    "KAGGLE_KEY": ("{}", "h32"),
    "TWILIO_AUTHTOKEN": ("{}", "h32"),
    "CREDS": ("{}", "w24"),
    "LICENSEKEY": ("{}", "w24"),
    "HTTPS_PROXY": ("http://me:{}@proxy:3128", "w14"),
    "GIT_REMOTE": ("https://{}@git.example.net/a.git", "w40"),
}
"""Name of a variable -> what it holds, and the secret in its place."""


def _draw(pieces: str, name: str) -> str:
    chance, parts = random.Random(name), []
    for piece in pieces.split(" "):
        letters, count = _LETTERS.get(piece[:1], ""), piece[1:]
        drawn = bool(letters) and count.isdigit()
        parts.append("".join(chance.choices(letters, k=int(count))) if drawn else piece)
    return "".join(parts)


def texts() -> dict[str, tuple[str, str]]:
    """Return name -> a text with a key, and the key."""
    shapes = {**{name: ("{}", pieces) for name, pieces in PREFIXES.items()}, **CONTEXTS}
    found = {}
    for name, (around, pieces) in shapes.items():
        key = _draw(pieces, name)
        found[name] = (around.format(key), key)
    return found


def variables() -> dict[str, tuple[str, str]]:
    """Return the name of a variable -> its value, and what of it is secret."""
    found = {}
    for name, (around, pieces) in NAMES.items():
        secret = _draw(pieces, name)
        found[name] = (around.format(secret), secret)
    return found
