CREATE TABLE books(title TEXT, author TEXT, year INTEGER, price REAL);
INSERT INTO books VALUES
('North','Ada',1991,12.5),('Reeds','Ada',2003,9.0),('Salt','Ben',1987,7.5),('Harbour','Cleo',2010,15.0),
('Lamps','Ben',2015,11.0),('Orchard','Dia',1999,8.25),('Tides','Cleo',2021,21.0),('Wool','Eve',2003,6.5);
