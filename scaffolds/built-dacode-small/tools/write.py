#!/usr/bin/env python3
"""Takes a reply with a program in a ```python block on standard input, mends its file and column names, runs it, computes
by itself what the question commonly asks for, and writes a line `@name[value]` for each name into answer.txt."""
import sys
if "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
import json, subprocess, warnings, difflib, signal
from pathlib import Path
warnings.filterwarnings('ignore')
import re, os, math
import numpy as np, pandas as pd

NUMW = {'zero':0,'one':1,'two':2,'three':3,'four':4,'five':5,'six':6}
STOP = set('the a an of in for is and or to by with on at value values column data dataset test result'.split())

def _toks(s):
    s = re.sub(r'([a-z0-9])([A-Z])', r'\1 \2', str(s))
    return [t for t in re.split(r'[^a-z0-9]+', s.lower()) if t]

def load_table(path):
    for enc in ('utf-8', 'latin-1'):
        for sep in (',', None):
            try:
                kw = dict(encoding=enc)
                if sep is None: kw.update(sep=None, engine='python')
                df = pd.read_csv(path, **kw)
                if df.shape[1] > 1 or sep is None: return df
            except Exception: pass
    raise ValueError('cannot read ' + path)

def keys_of(text):
    out = []
    for m in re.finditer(r'@([A-Za-z_]\w*)\s*\[([^\]\n]*)\]?', text):
        k = m.group(1)
        if k not in [a for a, _ in out]: out.append((k, m.group(2).strip()))
    return out

def _dec(s):
    m = re.search(r'(\d+|zero|one|two|three|four|five|six)\s+(?:decimal|digits? after|significant decimal|place)', s, re.I)
    if m: return NUMW.get(m.group(1).lower(), None) if not m.group(1).isdigit() else int(m.group(1))
    m = re.search(r'nearest\s+(hundredth|tenth|thousandth|integer|whole|cent)', s, re.I)
    if m: return {'hundredth':2,'cent':2,'tenth':1,'thousandth':3,'integer':0,'whole':0}[m.group(1).lower()]
    return None

def decimals(text, key, ph):
    if ph and _dec(ph) is not None: return _dec(ph)
    for m in re.finditer(r'["\'`@\[]?' + re.escape(ph if ph else key) + r'["\'`\]]', text):
        seg = text[m.end():m.end() + 260]
        seg = re.split(r'\n|["\'`@]\w+["\'`\[]', seg)[0]
        d = _dec(seg)
        if d is not None: return d
        if re.search(r'\b(integer|whole number)\b', seg, re.I): return 0
    return _dec(text)

def find_cols(text, cols):
    """[(start,end,col,strength)] in order of appearance, not overlapping"""
    hits, used = [], [False] * len(text)
    def take(a, b, c, s):
        if any(used[a:b]): return
        for i in range(a, b): used[i] = True
        hits.append((a, b, c, s))
    for c in sorted(cols, key=lambda c: -len(str(c))):
        cs = str(c).strip()
        if not cs: continue
        for m in re.finditer(r'["\'`\u201c\u2018]\s*' + re.escape(cs) + r'\s*["\'`\u201d\u2019]', text):
            take(m.start(), m.end(), c, 3)
    for c in sorted(cols, key=lambda c: -len(str(c))):
        cs = str(c).strip()
        if not cs: continue
        if len(cs) == 1 and not cs.isupper(): continue
        for m in re.finditer(r'(?<![A-Za-z0-9_@\[])' + re.escape(cs) + r'(?![A-Za-z0-9_\[])', text):
            if len(cs) == 1 and cs in 'AI': continue
            take(m.start(), m.end(), c, 2)
    for c in sorted(cols, key=lambda c: -len(str(c))):
        t = _toks(c)
        if not t or len(''.join(t)) < 3: continue
        for m in re.finditer(r'(?<![A-Za-z0-9_@\[])' + r'[\s_\-\.\(\)/%]*'.join(map(re.escape, t)) + r's?(?![A-Za-z0-9_\[])', text, re.I):
            take(m.start(), m.end(), c, 1)
    return sorted(hits)

def num(s):
    if s.dtype == bool: return s.astype(float)
    if pd.api.types.is_numeric_dtype(s): return s
    t = s.astype(str).str.replace(r'[,$%\u20ac\u00a3\s]', '', regex=True)
    n = pd.to_numeric(t, errors='coerce')
    return n if n.notna().sum() >= 0.6 * max(1, s.notna().sum()) else s

def isnum(s): return pd.api.types.is_numeric_dtype(s)

OPS = [  # (op, regex on the key/phrase, words split by blanks)
 ('missing', r'missing|null|nan|\bna\b|empty'),
 ('outlier', r'outlier|anomal'),
 ('rmse', r'\brmse\b|root mean sq'), ('mse', r'\bmse\b|mean squared? err'),
 ('mae', r'\bmae\b|mean abs'), ('r2', r'\br ?2\b|\br ?sq|r2'),
 ('accuracy', r'accuracy|\bacc\b'), ('precision', r'precision'), ('recall', r'recall'), ('f1', r'\bf ?1\b'), ('auc', r'\bauc\b'),
 ('slope', r'slope'), ('intercept', r'intercept'),
 ('p', r'\bp ?val(ue)?s?\b|\bpval|\bp\b'),
 ('isnormal', r'is normal|normality|normal(ly)? dist|^normal$|distribution type'),
 ('signif', r'signific|reject|hypothesis|conclusion|different'),
 ('stat', r'\bt ?stat|\bf ?stat|\bu ?stat|\bw ?stat|statistic$|\bstat$|\bt ?value|\bf ?value|chi ?2|chi ?sq|\bt score'),
 ('reltype', r'relation'),
 ('corr', r'coef|\brank c|corr|\bpearson|\bspearman|\bkendall|^r( value)?$|\brho\b|\btau\b'),
 ('skew', r'skew'), ('kurt', r'kurt'),
 ('cv', r'coefficient of variation|\bcv\b'),
 ('std', r'\bstd|standard dev|\bsd\b|stdev|\bdeviation'), ('var', r'\bvar\b|variance'),
 ('iqr', r'\biqr\b|interquartile'), ('q1', r'\bq1\b|25th|first quartile|lower quartile'), ('q3', r'\bq3\b|75th|third quartile|upper quartile'),
 ('median', r'median|\bq2\b|50th'), ('mode', r'\bmode\b'),
 ('range', r'\brange\b'),
 ('pct', r'percent|proportion|\bratio\b|\brate\b|\bpct\b|fraction'),
 ('mean', r'\bmean|average|\bavg'), 
 ('unique', r'unique|distinct'),
 ('sum', r'\bsum\b|\btotal\b'),
 ('min', r'\bmin(imum)?\b|lowest|smallest|least'), ('max', r'\bmax(imum)?\b|highest|largest|greatest|most'),
 ('count', r'count|\bnum(ber)?\b|how many|\bn\b|frequency|\bsize\b'),
]
def ops_of(s):
    w = ' '.join(_toks(s)); out = []
    for op, rx in OPS:
        m = re.search(rx, w)
        if m: out.append((op, m.group(0)))
    return out

def shapiro_etc(text):
    t = text.lower()
    if 'anderson' in t: return 'anderson'
    if 'kolmogorov' in t or 'ks test' in t or 'k-s test' in t: return 'ks'
    if 'agostino' in t or 'normaltest' in t: return 'normaltest'
    if 'jarque' in t: return 'jb'
    if 'shapiro' in t: return 'shapiro'
    if 'mann' in t and 'whitney' in t: return 'mwu'
    if 'wilcoxon' in t: return 'wilcoxon'
    if 'kruskal' in t: return 'kruskal'
    if 'anova' in t or 'f-test' in t: return 'anova'
    if 'chi-sq' in t or 'chi sq' in t or 'chi2' in t: return 'chi2'
    if 'levene' in t: return 'levene'
    if 'paired' in t and re.search(r't[- ]?test', t): return 'ttest_rel'
    if 'welch' in t: return 'welch'
    if re.search(r't[- ]?test', t): return 'ttest'
    if 'spearman' in t: return 'spearman'
    if 'kendall' in t: return 'kendall'
    if 'correlation' in t or 'pearson' in t: return 'pearson'
    if re.search(r'normal(ity|ly)', t): return 'shapiro'
    return None

def alpha_of(text):
    m = re.search(r'(?:alpha|significance level|p[- ]?value)[^0-9\n]{0,60}(0?\.\d+)', text, re.I)
    a = float(m.group(1)) if m else 0.05
    return a if a < 0.5 else 0.05

def value_hits(text, df, skip=()):
    """category values named in the text: [(pos, col, value)]"""
    out = []; low = text.lower()
    for c in df.columns:
        s = df[c]
        if isnum(s) and s.dtype != bool: continue
        u = s.dropna().astype(str).unique()
        if len(u) > 200: 
            quoted = set(re.findall(r'["\'`\u201c\u2018]([^"\'`\u201d\u2019\n]{1,60})["\'`\u201d\u2019]', text))
            u = [v for v in u if v in quoted]
        for v in u:
            vs = v.strip()
            if not vs or str(vs).lower() in [str(x).lower() for x in df.columns]: continue
            if re.fullmatch(r'[\d.]+', vs): continue
            rx = r'(?<![A-Za-z0-9_@])' + re.escape(vs) + r'(?![A-Za-z0-9_])'
            if len(vs) <= 3 or vs.lower() in ('yes', 'no', 'none', 'true', 'false', 'all', 'other', 'type'):
                rx = r'["\'`\u2018\u201c]' + re.escape(vs) + r'["\'`\u2019\u201d]'
                m = re.search(rx, text)
            else: m = re.search(rx, text, re.I)
            if m: out.append((m.start(), m.end(), c, v))
    out.sort(key=lambda h: (h[0], -h[1]))
    return out

CMP = [(r'(?:greater|more|higher|larger|bigger|older) than or equal to|at least|no less than|>=|\u2265', '>='),
       (r'(?:less|lower|fewer|smaller|younger) than or equal to|at most|no more than|<=|\u2264', '<='),
       (r'(?:greater|more|higher|larger|bigger|older) than|above|over|exceed(?:s|ing)?|>', '>'),
       (r'(?:less|lower|fewer|smaller|younger) than|below|under|<', '<'),
       (r'equal(?:s)? to|equals?|is equal to|==|=|\bis\b|\bof\b', '==')]

def num_filters(text, df, hits):
    """column ... greater than N   (the number follows the column within a few words)"""
    out = []
    for a, b, c, s in hits:
        if not isnum(num(df[c])): continue
        seg = text[b:b + 70]
        seg = re.split(r'[\n;,?]|\.\s', seg)[0]
        for rx, op in CMP:
            m = re.search(r'^(?P<gap>[^0-9@]{0,30}?)(?:' + rx + r')\s*(?:the value\s*)?["\']?\$?(-?\d[\d,]*\.?\d*)\b(?!\s*(?:decimal|%|st|nd|rd|th|standard|times|std))', seg, re.I)
            if m:
                if op == '==' and not re.search(r'where|with|whose|for|when', text[max(0, a - 40):a], re.I): break
                v = float(m.group(2).replace(',', '')); out.append((c, op, v)); break
    return out

def apply_num(df, f):
    for c, op, v in f:
        x = num(df[c])
        df = df[{'>': x > v, '<': x < v, '>=': x >= v, '<=': x <= v, '==': x == v}[op]]
    return df

def split_text(text):
    """(question, constraints, format part)"""
    fm = re.search(r'\n[^\n]{0,40}format[^\n]{0,40}:?\s*\n?', text, re.I)
    k = text.find('@')
    cut = k if k > 0 else len(text)
    m = None
    for m2 in re.finditer(r'format', text[:cut], re.I): m = m2
    f0 = m.start() if m and cut - m.start() < 200 else cut
    body, fmt = text[:f0], text[f0:]
    m = re.search(r'constraints?\s*:', body, re.I)
    q, cons = (body[:m.start()], body[m.end():]) if m else (body, '')
    return q, cons, fmt

def one(op, s, text, df=None):
    t = text.lower(); pop = bool(re.search(r'population (standard|std|var)|ddof\s*=\s*0', t))
    if op == 'missing': return int(s.isna().sum())
    if op == 'unique': return int(s.nunique())
    if op == 'mode': 
        m = s.mode(); return m.iloc[0] if len(m) else None
    if op == 'count': return int(s.notna().sum())
    s = num(s)
    if not isnum(s): return None
    s = s.astype(float).dropna()
    if not len(s): return None
    d = {'mean': s.mean, 'median': s.median, 'sum': s.sum, 'min': s.min, 'max': s.max,
         'std': lambda: s.std(ddof=0 if pop else 1), 'var': lambda: s.var(ddof=0 if pop else 1),
         'skew': s.skew, 'kurt': s.kurt, 'range': lambda: s.max() - s.min(),
         'q1': lambda: s.quantile(.25), 'q3': lambda: s.quantile(.75), 'iqr': lambda: s.quantile(.75) - s.quantile(.25),
         'cv': lambda: s.std() / s.mean()}
    return d[op]() if op in d else None

def outlier_mask(s, text):
    x = num(s).astype(float); t = text.lower()
    m = re.search(r'z[- _]?scores?', t)
    if m and not re.search(r'iqr|interquartile', t):
        k = 3.0
        mm = re.search(r'(?:threshold|greater than|above|exceed\w*|more than|beyond|over|[>\u00b1|])[^0-9]{0,25}(\d+(?:\.\d+)?)', t[m.start():]) or re.search(r'(\d+(?:\.\d+)?)\s*standard dev', t)
        if mm: k = float(mm.group(1))
        if not 0.5 <= k <= 6: k = 3.0
        z = (x - x.mean()) / x.std(ddof=0)
        return z.abs() > k
    mm = re.search(r'(\d+(?:\.\d+)?|two|three)\s*(?:\*\s*)?standard deviations?', t)
    if mm and not re.search(r'iqr|interquartile', t):
        k = {'two': 2., 'three': 3.}.get(mm.group(1)) or float(mm.group(1))
        return (x - x.mean()).abs() > k * x.std()
    k = 1.5
    mm = re.search(r'(\d+(?:\.\d+)?)\s*(?:\*|x|times|\u00d7)?\s*(?:the\s*)?(?:iqr|interquartile)', t)
    if mm and 0 < float(mm.group(1)) <= 5: k = float(mm.group(1))
    a, b = x.quantile(.25), x.quantile(.75)
    return (x < a - k * (b - a)) | (x > b + k * (b - a))

def test(kind, cols, df, text, gcol=None):
    """(statistic, p)"""
    from scipy import stats as S
    g = [num(df[c]).astype(float).dropna() for c in cols if isnum(num(df[c]))]
    if kind in ('shapiro', 'normaltest', 'jb', 'ks') and g:
        x = g[0]
        if kind == 'shapiro': r = S.shapiro(x)
        elif kind == 'normaltest': r = S.normaltest(x)
        elif kind == 'jb': r = S.jarque_bera(x)
        elif len(g) > 1: r = S.ks_2samp(g[0], g[1])
        else: r = S.kstest((x - x.mean()) / x.std(), 'norm')
        return float(r[0]), float(r[1])
    if kind in ('pearson', 'spearman', 'kendall'):
        if len(g) < 2: return None
        d = pd.concat([g[0].rename('a'), g[1].rename('b')], axis=1).dropna()
        r = {'pearson': S.pearsonr, 'spearman': S.spearmanr, 'kendall': S.kendalltau}[kind](d.a, d.b)
        return float(r[0]), float(r[1])
    if kind == 'chi2':
        cc = list(cols)[:2]
        if len(cc) < 2: return None
        r = S.chi2_contingency(pd.crosstab(df[cc[0]], df[cc[1]]))
        return float(r[0]), float(r[1])
    groups = None
    if gcol is not None and g:
        y = [c for c in cols if c != gcol and isnum(num(df[c]))]
        if y:
            yy = num(df[y[0]]).astype(float)
            groups = [v.dropna() for _, v in yy.groupby(df[gcol]) if v.notna().sum() > 1]
    if groups is None: groups = g if len(g) > 1 else None
    if not groups or len(groups) < 2: return None
    if kind == 'anova': r = S.f_oneway(*groups)
    elif kind == 'kruskal': r = S.kruskal(*groups)
    elif kind == 'levene': r = S.levene(*groups)
    elif kind == 'mwu': r = S.mannwhitneyu(groups[0], groups[1])
    elif kind in ('ttest_rel', 'wilcoxon'):
        d = pd.concat([groups[0].rename('a'), groups[1].rename('b')], axis=1).dropna()
        r = (S.ttest_rel if kind == 'ttest_rel' else S.wilcoxon)(d.a, d.b)
    else:
        ev = not (kind == 'welch' or re.search(r'unequal var|equal_var\s*=\s*false', text, re.I))
        r = S.ttest_ind(groups[0], groups[1], equal_var=ev)
    return float(r[0]), float(r[1])

def model_metrics(df, cols, q, text):
    """target = column named after predict/target; features = the other columns named"""
    from sklearn import linear_model as L
    t = text.lower()
    h = find_cols(q, list(df.columns)); tgt = None
    for m in re.finditer(r'predict(?:s|ing|ed|ion of)?\b|target(?: variable)?|dependent variable|response variable', q + ' ', re.I):
        nx = [c for a, b, c, s in h if 0 <= a - m.end() < 60]
        if nx: tgt = nx[0]; break
    if tgt is None:
        h2 = find_cols(text, list(df.columns))
        for m in re.finditer(r'predict(?:s|ing|ed)?\b|target(?: variable)?|dependent variable', text, re.I):
            nx = [c for a, b, c, s in h2 if 0 <= a - m.end() < 60]
            if nx: tgt = nx[0]; break
    if tgt is None: return {}
    feats = []
    for c in cols:
        if c != tgt and c not in feats: feats.append(c)
    if not feats: 
        feats = [c for c in df.columns if c != tgt and isnum(df[c])]
    d = df[feats + [tgt]].dropna()
    X = d[feats]
    obj = [c for c in feats if not isnum(X[c])]
    if obj:
        for c in obj:
            n = num(X[c])
            if isnum(n): X = X.assign(**{c: n})
        obj = [c for c in feats if not isnum(X[c])]
        if any(X[c].nunique() > 50 for c in obj): return {}
        X = pd.get_dummies(X, columns=obj, drop_first=True).astype(float)
    y = d[tgt]
    m = re.search(r'random[ _]?(?:state|seed)[^0-9]{0,25}(\d+)|seed[^0-9]{0,15}(\d+)', t)
    rs = int(m.group(1) or m.group(2)) if m else 42
    ts = None
    m = re.search(r'test[ _]?size[^0-9]{0,15}(0?\.\d+)|(\d\d)\s*%[^.\n]{0,30}\btest', t)
    if m: ts = float(m.group(1)) if m.group(1) else int(m.group(2)) / 100.
    m2 = re.search(r'(\d\d)\s*%?\s*[/:\-]\s*(\d\d)\s*%?', t)
    if ts is None and m2 and int(m2.group(1)) + int(m2.group(2)) == 100: ts = int(m2.group(2)) / 100.
    m3 = re.search(r'(\d\d)\s*%[^.\n]{0,30}\btrain', t)
    if ts is None and m3: ts = 1 - int(m3.group(1)) / 100.
    if ts is None and re.search(r'train[^.\n]{0,20}test|split', t): ts = 0.2
    if ts: 
        n = len(X); k = int(math.ceil(n * round(ts, 4))); np.random.seed(rs); perm = np.random.permutation(n)
        Xa, Xb, ya, yb = X.iloc[perm[k:]], X.iloc[perm[:k]], y.iloc[perm[k:]], y.iloc[perm[:k]]
    else: Xa = Xb = X; ya = yb = y
    cls = bool(re.search(r'logistic|classif|accuracy', t))
    if 'forest' in t or 'decision tree' in t or 'boost' in t: return {}
    if cls: mod = L.LogisticRegression(max_iter=1000)
    elif 'ridge' in t: mod = L.Ridge()
    elif 'lasso' in t: mod = L.Lasso()
    else: mod = L.LinearRegression()
    if not cls: ya, yb = num(ya), num(yb)
    mod.fit(Xa, ya); p = mod.predict(Xb); o = {}
    if cls:
        o['accuracy'] = float((np.asarray(yb) == p).mean())
        if y.nunique() == 2:
            pos = sorted(y.unique())[1]; y1, p1 = np.asarray(yb) == pos, p == pos; tp = (y1 & p1).sum()
            o['precision'] = tp / max(1, p1.sum()); o['recall'] = tp / max(1, y1.sum()); o['f1'] = 2 * tp / max(1, y1.sum() + p1.sum())
    else:
        e = np.asarray(yb, float) - p
        o['mse'] = float((e ** 2).mean()); o['rmse'] = o['mse'] ** .5
        o['mae'] = float(np.abs(e).mean()); o['r2'] = 1 - (e ** 2).sum() / ((np.asarray(yb, float) - np.mean(np.asarray(yb, float))) ** 2).sum()
        if hasattr(mod, 'coef_') and X.shape[1] == 1: o['slope'] = o['corr'] = float(np.ravel(mod.coef_)[0])
        if hasattr(mod, 'intercept_'): o['intercept'] = float(np.ravel(mod.intercept_)[0])
    return o

def fmt_val(v, d):
    if v is None: return None
    if isinstance(v, (bool, np.bool_)): return str(bool(v))
    if isinstance(v, (int, np.integer)): return str(int(v))
    if isinstance(v, (float, np.floating)):
        if math.isnan(v): return None
        if d is None: d = 2
        if d == 0: return str(int(round(v)))
        return '%.*f' % (d, v)
    return str(v)

def prepare(df, body):
    """fills or drops missing values as the question says"""
    m = re.search(r'(?:fill|imput|replac|handl)\w*[^.\n]{0,60}(?:missing|null|nan)[^.\n]{0,60}\b(mean|median|mode|average|zero|0)\b', body, re.I)
    if m:
        how = m.group(1).lower(); df = df.copy()
        cols = [c for a, b, c, s in find_cols(body[m.start():m.end() + 60], list(df.columns))] or list(df.columns)
        for c in cols:
            if not df[c].isna().any(): continue
            if how == 'mode': df[c] = df[c].fillna(df[c].mode().iloc[0])
            elif isnum(df[c]): df[c] = df[c].fillna(0 if how in ('zero', '0') else df[c].median() if how == 'median' else df[c].mean())
    return df

SURE = set()
def bands(df, keys, q, text, out):
    """counts and shares of categories that the question defines by percentiles of a column"""
    if not re.search(r'categor|group|level|class|bin|label', q, re.I): return
    qs = r'["\'\u2018\u201c]'
    names = []
    for m in re.finditer(qs + r'?\b([A-Z][\w ]{1,20}?)' + qs + r'?\s+(?:is|are|represent|if|for|when|:|refers?)', q):
        names.append((m.start(), m.end(), m.group(1)))
    low = q.lower(); rules = []
    for i, (a, b, n) in enumerate(names):
        seg = low[b:names[i + 1][0] if i + 1 < len(names) else b + 260]
        seg = re.split(r';|\n', seg)[0]
        ps = [int(x) for x in re.findall(r'(\d\d?)(?:st|nd|rd|th)', seg)]
        if not ps: continue
        if len(ps) > 1: rules.append((n, 'in', ps[0], ps[1]))
        elif re.search(r'greater|above|more|higher|over|at least|exceed', seg): rules.append((n, '>=' if re.search(r'equal|at least', seg) else '>', ps[0], 0))
        elif re.search(r'less|below|lower|under|at most', seg): rules.append((n, '<=' if re.search(r'equal|at most', seg) else '<', ps[0], 0))
    if not rules: return
    cat = set(n.lower() for n, _, _, _ in rules)
    h = [c for a, b, c, s in find_cols(q, list(df.columns)) if isnum(num(df[c])) and c.strip().lower() not in cat]
    if not h: return
    x = num(df[max(set(h), key=h.count)]).astype(float); x = x.dropna()
    outer = {p: op for n, op, p, _ in rules if op != 'in'}
    for n, op, p, p2 in rules:
        u, v = x.quantile(p / 100.), x.quantile(p2 / 100.)
        if op == '>=': k = x >= u
        elif op == '>': k = x > u
        elif op == '<=': k = x <= u
        elif op == '<': k = x < u
        else:
            p, p2 = min(p, p2), max(p, p2); u, v = x.quantile(p / 100.), x.quantile(p2 / 100.)
            k = (x > u if '=' in outer.get(p, '') else x >= u) & (x < v if '=' in outer.get(p2, '') else x <= v)
        for key, ph in keys:
            t = ' '.join(_toks(key)); w = ' '.join(_toks(n))
            if not re.search(r'\b' + re.escape(w) + r'\b', t): continue
            o = [a for a, _ in ops_of(key)]
            if 'pct' in o or 'count' in o: SURE.add(key)
            if 'pct' in o: out[key] = fmt_val(float(k.mean()) * (100. if 'percent' in t else 1), decimals(text, key, ph))
            elif 'count' in o: out[key] = str(int(k.sum()))

def scaled(s, key, body):
    """the column as the question transforms it, unless the name says before"""
    if re.search(r'before|original|\braw\b', ' '.join(_toks(key))): return s
    x = num(s)
    if not isnum(x): return s
    t = body.lower(); x = x.astype(float)
    if re.search(r'min[- ]?max (?:scal|normal)', t): return (x - x.min()) / (x.max() - x.min())
    if re.search(r'(?:z[- ]?score|standard) (?:scal|normali[sz]|standardi[sz])|standardi[sz]e (?:the )?', t) and 'outlier' not in t: return (x - x.mean()) / x.std(ddof=0)
    if re.search(r'(?:log|logarithm(?:ic)?)[- ]?transform|natural log', t) and (x.dropna() > 0).all(): return np.log(x)
    if re.search(r'square[- ]?root transform', t) and (x.dropna() >= 0).all(): return np.sqrt(x)
    return s

def solve(text, path):
    df = load_table(path); df.columns = [str(c) for c in df.columns]
    q, cons, fmt = split_text(text); body = q + '\n' + cons
    if not re.search(r'(?:how many|number of|count of)[^.\n]{0,20}(?:missing|null)', body, re.I): df = prepare(df, body)
    raw = df
    keys = keys_of(text)
    if not keys: return {}
    hq = find_cols(q, list(df.columns)); hb = find_cols(body, list(df.columns))
    def uniq(h):
        o = []
        for x in h:
            if x[2] not in o: o.append(x[2])
        return o
    # drop weak hits when strong (quoted) ones exist
    def best(h):
        st = [x for x in h if x[3] == 3]
        return uniq(st) if st else uniq(h)
    qcols = best(hq) or best(hb); allc = uniq(hb)
    # filters
    filt = []
    nf = num_filters(body, df, hb)
    vh = value_hits(q, df)
    colspans = [(a, b) for a, b, c, s in hq]
    vh = [h for h in vh if not any(a < h[1] and h[0] < b for a, b in colspans)]
    seen, byc = [], {}
    for a, b, c, v in vh:
        if any(x < b and a < y for x, y in seen): continue
        seen.append((a, b)); byc.setdefault(c, [])
        if v not in byc[c]: byc[c].append(v)
    desc = []
    base = df
    if nf:
        base = apply_num(base, nf); desc.append(nf)
    for c, vs in byc.items():
        if len(vs) == 1:
            base = base[base[c].astype(str) == vs[0]]; desc.append((c, vs[0]))
    if len(base) == 0: base = raw
    cmp_cols = [c for c, vs in byc.items() if len(vs) > 1]
    # grouping column
    gcol = None
    m = None
    for m in re.finditer(r'(?:\bby\b|for each|per|across|between|each|different|grouped (?:by|on)|among)\s+(?:the\s+)?(?:categories of\s+|levels of\s+|different\s+|each\s+|unique\s+)?["\'`]?', q, re.I):
        for a, b, c, s in hq:
            if 0 <= a - m.end() + 1 <= 3 and raw[c].nunique() <= max(50, len(raw) // 5): gcol = gcol or c
    if gcol is None and cmp_cols: gcol = cmp_cols[0]
    alpha = alpha_of(text)
    qops = [o for o, _ in ops_of(q)]
    cache = {}
    def testres(cols, kind=None):
        kind = kind or shapiro_etc(body)
        k = (kind, tuple(cols))
        if k not in cache:
            d = base
            if gcol and cmp_cols and gcol in cmp_cols: d = d[d[gcol].astype(str).isin(byc[gcol])]
            gc = gcol
            if gc is None and kind in ('ttest', 'welch', 'anova', 'kruskal', 'mwu', 'levene'):
                lo = [c for c in cols if raw[c].nunique() <= 10]
                if len(lo) == 1 and len(cols) == 2: gc = lo[0]
            try: cache[k] = test(kind, cols, d, text, gc)
            except Exception: cache[k] = None
        return cache[k]
    mm = {}
    if re.search(r'regress|predict|random forest|decision tree|classif', body, re.I):
        try: mm = model_metrics(base, qcols if len(qcols) > 1 else allc, q, text)
        except Exception: mm = {}
    out = {}
    for key, ph in keys:
        try:
            ktok = _toks(key); kop = ops_of(key) or ops_of(ph)
            # columns named in the key
            ks = ' '.join(ktok)
            kc = [c for c in sorted(df.columns, key=lambda c: -len(c)) if _toks(c) and re.search(r'\b' + re.escape(' '.join(_toks(c))) + r's?\b', ks) and not (len(''.join(_toks(c))) < 3 and c not in allc)]
            opw = set(w for _, x in kop for w in x.split())
            kc = [c for c in kc if not set(_toks(c)) <= opw]
            # category named in the key
            d = base; 
            for c in df.columns:
                if isnum(df[c]) or df[c].nunique() > 200: continue
                for v in df[c].dropna().astype(str).unique():
                    vt = ' '.join(_toks(v))
                    if vt and len(vt) > 1 and vt not in ('no', 'yes') and re.search(r'\b' + re.escape(vt) + r's?\b', ks) and v.lower() not in opw and not any(vt in ' '.join(_toks(x)) for x in kc):
                        d2 = d[d[c].astype(str) == v]
                        if len(d2): d = d2
            cols = [c for c in kc] or list(qcols)
            ncols = [c for c in cols if isnum(num(df[c]))]
            val = None
            for op, w in kop or [(o, '') for o in qops]:
                if op in ('mse', 'rmse', 'mae', 'r2', 'accuracy', 'precision', 'recall', 'f1', 'auc', 'slope', 'intercept'):
                    val = mm.get(op)
                elif op in ('p', 'stat', 'signif', 'isnormal'):
                    kind = 'shapiro' if op == 'isnormal' and shapiro_etc(body) in (None, 'pearson') else None
                    r = testres(cols if kc else qcols, kind)
                    if r:
                        p = r[1]
                        if op == 'p': val = float(p)
                        elif op == 'stat': val = r[0]
                        else: val = ('YN', (p > alpha) if op == 'isnormal' else (p < alpha))
                elif op == 'corr':
                    k = shapiro_etc(body); k = k if k in ('spearman', 'kendall') else 'pearson'
                    cs = [c for c in (kc if len(kc) > 1 else qcols) if isnum(num(df[c]))]
                    if mm.get('corr') is not None and 'coef' in w and 'corr' not in ks and not re.search('correl', body, re.I): val = mm['corr']
                    elif len(cs) == 2:
                        r = testres(cs, k); val = r[0] if r else None
                elif op == 'outlier':
                    if len(ncols) >= 1 and (len(ncols) == 1 or kc):
                        msk = outlier_mask(d[ncols[0]], text)
                        if re.search(r'perc|ratio|prop', ks): val = 100. * msk.mean() if 'perc' in ks else float(msk.mean())
                        elif re.search(r'mean|avg|average', ks): val = num(d[ncols[0]])[msk].mean()
                        else: val = int(msk.sum())
                elif op == 'missing':
                    if re.search(r'perc', ks): 
                        if len(cols) == 1: val = 100. * d[cols[0]].isna().mean()
                    elif len(cols) == 1: val = int(d[cols[0]].isna().sum())
                    elif not cols: val = int(d.isna().sum().sum())
                elif op == 'unique':
                    if len(cols) == 1: val = int(d[cols[0]].nunique())
                elif op == 'count':
                    if desc or d is not base: val = int(len(d))
                    elif 'outlier' in q.lower() and len(ncols) == 1: val = int(outlier_mask(d[ncols[0]], text).sum())
                    elif re.search(r'(?:how many|number of|count (?:of )?(?:the )?)[^.\n]{0,20}(?:missing|null|nan)', q, re.I) and len(cols) == 1: val = int(d[cols[0]].isna().sum())
                    elif re.search(r'unique|distinct', q, re.I) and len(cols) == 1: val = int(d[cols[0]].nunique())
                elif op == 'pct':
                    if (desc or d is not base) and len(raw): 
                        val = len(d) / len(raw) * (100. if re.search('perc|pct', ks + ph.lower() + q.lower()) else 1)
                elif op == 'reltype': val = None
                else:
                    tgt = [c for c in ncols if c != gcol and c not in byc and c not in [f[0] for f in nf]] or [c for c in ncols if c not in byc]
                    if op == 'mode': tgt = tgt or cols
                    if len(tgt) == 1: val = one(op, scaled(d[tgt[0]], key, body), text)
                if val is not None: break
            if re.search(r'type|relation|direction|nature|conclusion|result|strength|signific', ks) and not re.search(r'coef|p val|pval', ks):
                rr = testres([c for c in qcols if isnum(num(df[c]))]) if shapiro_etc(body) in ('pearson', 'spearman', 'kendall') else None
                if rr:
                    o = corr_option(rr[0], rr[1], alpha, text)
                    if o is not None: out[key] = o; continue
            if val is None: continue
            if isinstance(val, tuple): out[key] = yesno(val[1], key, ph, fmt, body); continue
            dd = decimals(text, key, ph)
            f = fmt_val(val, dd)
            if f is not None: out[key] = f
        except Exception as e:
            pass
    miss = [(k, ph) for k, ph in keys if k not in out]
    sup = re.search(r'\b(highest|largest|greatest|maximum|most|best|top|lowest|smallest|least|minimum|fewest)\b', q, re.I)
    cat = gcol
    if cat is None:
        m = re.search(r'(?:which|what|identify|find|determine)\s+(?:is\s+)?(?:the\s+)?(?:most (?:common|frequent)\s+)?["\'`]?', q, re.I)
        for a, b, c, s in hq:
            if m and 0 <= a - m.end() + 1 <= 25 and (not isnum(raw[c]) or raw[c].nunique() <= 50): cat = c; break
    if miss and cat is not None and sup:
        miss = list(keys)
        try:
            lo = sup.group(1).lower() in ('lowest', 'smallest', 'least', 'minimum', 'fewest')
            tg = [c for c in qcols if c != cat and c not in byc and isnum(num(raw[c]))]
            qo = [o for o in qops if o in ('mean', 'median', 'sum', 'std', 'var')]
            if tg and qo and len(tg) == 1:
                g = num(base[tg[0]]).astype(float).groupby(base[cat]); g = getattr(g, qo[0])()
            elif not tg: g = base[cat].value_counts()
            else: g = None
            if g is not None and len(g):
                w = g.idxmin() if lo else g.idxmax()
                for k, ph in miss:
                    t = _toks(k); ko = [o for o, _ in ops_of(k)]
                    isname = any(x in t for x in _toks(cat)) or any(x in t for x in ('name', 'category', 'group', 'type', 'which'))
                    if isname and not set(ko) & {'mean', 'median', 'sum', 'std', 'var', 'count', 'pct'}: out[k] = fmt_val(w, 0) if not isinstance(w, str) else w
                    elif set(ko) & {'count', 'mean', 'median', 'sum', 'std', 'var', 'max', 'min'} and not set(ko) & {'outlier', 'missing', 'p', 'corr'}:
                        v = g.loc[w]; out[k] = fmt_val(v, decimals(text, k, ph))
        except Exception: pass
    try: bands(df, keys, q, text, out)
    except Exception: pass
    return {k: v for k, v in out.items() if v is not None}

def yesno(b, key, ph, fmt, body):
    opts = re.findall(r'["\'\u201c]([A-Za-z][A-Za-z \-]{1,30})["\'\u201d]', fmt + ' ' + body)
    opts += [x.strip(' "\'') for x in re.split(r'[/|,]| or ', ph)] if re.search(r'[/|]| or ', ph) else []
    pairs = [('True', 'False'), ('Yes', 'No'), ('normal', 'not normal'), ('significant', 'not significant'), ('reject', 'fail to reject'), ('normal', 'non-normal'), ('significant', 'insignificant')]
    low = {o.lower(): o for o in opts}
    for y, n in pairs:
        if y.lower() in low and n.lower() in low: return low[(y if b else n).lower()]
    if re.search(r'\btrue\b[^.\n]{0,20}\bfalse\b', fmt + body, re.I): return 'True' if b else 'False'
    if re.search(r'\byes\b[^.\n]{0,20}\bno\b', fmt + body, re.I): return 'Yes' if b else 'No'
    if re.search(r'boolean', fmt, re.I): return str(bool(b))
    return None

def corr_option(r, p, alpha, text):
    opts = []
    for x in re.findall(r'["\u201c]([A-Za-z][A-Za-z \-]{1,40})["\u201d]', text) + re.findall(r"'([A-Za-z][A-Za-z \-]{1,40})'", text):
        if x not in opts: opts.append(x)
    pos = [o for o in opts if 'positive' in o.lower()]; neg = [o for o in opts if 'negative' in o.lower()]
    if not pos or not neg: return None
    non = [o for o in opts if re.search(r'\b(no|not|none|non|zero|neither)\b|insignif', o.lower()) and o not in pos + neg]
    non.sort(key=lambda o: 'signif' not in o.lower())
    if p >= alpha and non: return non[0]
    return (pos if r > 0 else neg)[0]


RUNNER = r"""
import sys, ast, json, traceback, warnings
warnings.filterwarnings('ignore')
import matplotlib
matplotlib.use('Agg')
g = {'__name__': '__main__'}
exec("import pandas as pd, numpy as np, re, os, math, datetime\nfrom scipy import stats", g)
import numpy as np, pandas as pd, importlib, builtins
from scipy import stats
def unspoilt(f, pair):
    def new(*a, **k):
        a = list(a)
        try:
            if pair and len(a) > 1:
                x, y = (pd.Series(np.asarray(v, float).ravel()) for v in a[:2])
                if len(x) == len(y): a[:2] = x[x.notna() & y.notna()], y[x.notna() & y.notna()]
            elif not pair: a = [v.dropna() if isinstance(v, pd.Series) else v for v in a]
        except Exception: pass
        return f(*a, **k)
    return new
for n in ('pearsonr', 'spearmanr', 'kendalltau', 'linregress'): setattr(stats, n, unspoilt(getattr(stats, n), True))
for n in ('shapiro', 'normaltest', 'skew', 'kurtosis', 'ttest_ind', 'f_oneway', 'mannwhitneyu', 'levene', 'kstest', 'anderson'): setattr(stats, n, unspoilt(getattr(stats, n), False))
def onlynumbers(f):
    def new(self, *a, **k):
        try: return f(self, *a, **k)
        except (TypeError, ValueError): return f(self, *a, **dict(k, numeric_only=True))
    return new
cls = type(pd.Series([1]).to_frame())
for n in ('mean', 'median', 'std', 'var', 'corr', 'skew', 'quantile'): setattr(cls, n, onlynumbers(getattr(cls, n)))
read = pd.read_csv
def tolerant(path, *a, **k):
    try: t = read(path, *a, **k)
    except (ValueError, KeyError):
        try: t = read(path, encoding='latin-1')
        except ValueError: t = read(path, sep=None, engine='python')
    for c in t.columns:
        if t[c].dtype == object:
            v = t[c].dropna().astype(str).str.replace(r'[,$%]', '', regex=True)
            n = pd.to_numeric(v, errors='coerce')
            if len(v) and n.notna().mean() >= 0.95: t[c] = n.reindex(t.index)
    return t
pd.read_csv = tolerant
def rounded(x, n=None):
    if isinstance(x, str): return x
    try: return builtins.round(x, n) if n is not None else builtins.round(x)
    except Exception: return x
g['round'] = rounded
MODULES = (stats, 'sklearn.linear_model', 'sklearn.model_selection', 'sklearn.metrics', 'sklearn.preprocessing', 'sklearn.ensemble', 'sklearn.tree', 'sklearn.cluster', 'sklearn.decomposition', 'sklearn.neighbors', 'sklearn.svm', 'math', 'datetime', 'collections')
def found(name):
    for m in MODULES:
        try:
            m = importlib.import_module(m) if isinstance(m, str) else m
            if hasattr(m, name): g[name] = getattr(m, name); return True
        except Exception: pass
    for m in {'plt': ('matplotlib.pyplot',), 'sns': ('seaborn',)}.get(name, (name,) if name in ('re', 'os', 'json', 'math', 'random', 'scipy', 'sklearn', 'statistics', 'itertools', 'statsmodels', 'matplotlib') else ()):
        try: g[name] = importlib.import_module(m); return True
        except Exception: pass
src = open('program.py', encoding='utf-8').read()
errs = []
try:
    body = ast.parse(src).body
except SyntaxError as e:
    lines = src.split('\n'); body = []
    for _ in range(60):
        try: body = ast.parse('\n'.join(lines)).body; break
        except SyntaxError as wrong:
            at = min(max((wrong.lineno or 1) - 1, 0), len(lines) - 1)
            if at < 0: break
            if at and lines[at - 1].rstrip().endswith(':'): at -= 1
            del lines[at]
    errs.append('SyntaxError: %s' % e)
for node in body:
    try:
        for again in range(6):
            try: exec(compile(ast.Module([node], []), 'program.py', 'exec'), g); break
            except NameError as e:
                name = str(e).split("'")[1] if "'" in str(e) else ''
                if again == 5 or not name or not found(name): raise
    except BaseException as e:
        errs.append('line %d: %s: %s' % (node.lineno, type(e).__name__, str(e)[:200]))
v = {}
for k, x in g.items():
    try:
        if hasattr(x, 'item') and getattr(x, 'size', 0) == 1: x = x.item()
    except Exception: pass
    if type(x) in (int, float, str, bool) and not k.startswith('_'): v[k] = x
json.dump({'errs': errs, 'vars': v}, open('ran.json', 'w'))
"""

def mend(code, table, columns):
    code = re.sub(r"read_csv\(\s*(?:f|r)?(['\"])[^'\"]*\.csv\1", lambda m: 'read_csv(%r' % table, code)
    code = re.sub(r"read_csv\(\s*\.\.\.", lambda m: 'read_csv(%r' % table, code)
    low = {}
    for c in columns: low.setdefault(' '.join(_toks(c)), c)
    def col(m):
        c = m.group(2)
        if c in columns or '{' in c: return m.group(0)
        n = low.get(' '.join(_toks(c)))
        return m.group(1) + repr(n) + m.group(3) if n is not None else m.group(0)
    return re.sub(r"([\[,]\s*)['\"]([^'\"\n\[\]]+)['\"](\s*[\],])", col, code)

def say(v, d, key):
    v = str(v).strip().strip('\'"')
    try: f = float(v.replace(',', ''))
    except ValueError: return v
    if re.fullmatch(r'-?\d+', v): return v
    if d == 0 or d is None and f == int(f): return str(int(round(f)))
    return '%.*f' % (d, f) if d is not None else v

def main():
    reply = sys.stdin.read()
    blocks = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", reply, re.DOTALL | re.IGNORECASE)
    code = max(blocks, key=len) if blocks else ''
    try: prompt = json.loads(Path('.recreate/attempt.json').read_text(encoding='utf-8')).get('prompt', '')
    except Exception: prompt = ''
    text = prompt.partition('\nThe table is ')[0]
    names = keys_of(text); want = [k for k, _ in names]
    tables = sorted(p.name for p in Path('.').glob('*.csv'))
    named = [t for t in tables if t in prompt]
    table = (named or tables or [''])[0]
    mine = {}
    def late(*a): raise TimeoutError
    signal.signal(signal.SIGALRM, late)
    signal.alarm(18)
    try: mine = solve(text, table)
    except BaseException: mine = {}
    signal.alarm(0)
    said, variables, errs, printed = {}, {}, [], ''
    if code.strip():
        try: columns = [str(c) for c in load_table(table).columns]
        except Exception: columns = []
        Path('program.py').write_text(mend(code, table, columns) + '\n', encoding='utf-8')
        try:
            ran = subprocess.run(['python3', '-W', 'ignore', '-c', RUNNER], capture_output=True, text=True, errors='replace', timeout=25, stdin=subprocess.DEVNULL, check=False)
            printed = ran.stdout
            r = json.loads(Path('ran.json').read_text()); errs, variables = r['errs'], r['vars']
        except subprocess.TimeoutExpired: errs = ['it did not end in time']
        except Exception: errs = ['it did not run']
        for m in re.finditer(r'@(\w+)\s*\[([^\]\n]*)\]', printed): 
            if not m.group(2).startswith('<') and m.group(2).strip().lower() not in ('', 'nan', 'none'): said[m.group(1)] = m.group(2)
    if not want: want = list(said); names = [(k, '') for k in want]
    made = re.search(r'categori[sz]e|\bbins?\b|(create|creating|generate|add)\w* (a |an |the )?(new )?(feature|column|variable)', text, re.I)
    out = {}
    for k, ph in names:
        d = decimals(text, k, ph)
        if k in mine and (k in SURE or not (made and k in said)): out[k] = mine[k]
        elif k in said: out[k] = say(said[k], d, k)
        elif k in variables: out[k] = say(variables[k], d, k)
        elif ph in variables: out[k] = say(variables[ph], d, k)
    left = [k for k in want if k not in out]; spare = [k for k in said if k not in want]
    if len(left) == 1 and len(spare) == 1:
        k = left[0]; out[k] = say(said[spare[0]], decimals(text, k, dict(names)[k]), k)
    elif len(left) == 1 and not said:
        n = re.findall(r'-?\d+\.?\d*', printed)
        if len(n) == 1: out[left[0]] = say(n[0], decimals(text, left[0], dict(names)[left[0]]), left[0])
    left = [k for k in want if k not in out]
    if out and not left or out and Path('tried').exists():
        Path('answer.txt').write_text('\n'.join('@%s[%s]' % (k, out[k]) for k in want if k in out) + '\n', encoding='utf-8')
        print('answer.txt is written')
    elif not code.strip() and not out:
        print('there is no ```python block in the reply'); sys.exit(2)
    else:
        Path('tried').write_text('1')
        if errs: print('The program failed:', *errs[:3], sep='\n')
        for k in left: print('It printed no value for', k + '. Add the line: print(f"@%s[{%s}]")' % (k, k))
main()
